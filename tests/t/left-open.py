"""usage: left-open.py

Commits to the guest namespace of its job, and exits without closing its connection, as flux-shell
can while a future of its own holds the handle."""

import base64
import os

import flux
from flux.core.inner import raw

handle = flux.Flux()
raw.flux_incref(handle.handle)
data = base64.b64encode(b"left").decode()
op = {"key": "left", "flags": 0, "dirent": {"data": data, "type": "val", "ver": 1}}
payload = {"namespace": os.environ["FLUX_KVS_NAMESPACE"], "flags": 0, "ops": [op]}
handle.rpc("kvs.commit", payload).get()
