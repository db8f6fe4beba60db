"""usage: ride-bulk.py URI NAMESPACE MEGABYTES

Writes 64 KiB at a time, numbered, without waiting for answers: first 4 MiB. Says "ready" when one
commit is done. The rest, when a line has come from stdin, as fast as it is let. Says at the end how
many commits failed.

A namespace that is not a job's has no checkpoints. So the connector keeps 8 MiB of commits that are
done (rfc/0010 [commits-bound]): what is done before the broker is killed has to be less."""

import base64
import sys

import flux

CHUNK = 64 << 10
FIRST = (4 << 20) // CHUNK

handle = flux.Flux(sys.argv[1])
namespace = sys.argv[2]
count = int(sys.argv[3]) * 16
futures = []
for number in range(count):
    if number == FIRST:
        futures[0].get()
        print("ready", flush=True)
        sys.stdin.readline()
    text = f"{number:08d}".encode() * (CHUNK // 8)
    dirent = {"data": base64.b64encode(text).decode(), "type": "val", "ver": 1}
    operation = {"key": "log", "flags": 32, "dirent": dirent}
    payload = {"namespace": namespace, "flags": 0, "ops": [operation]}
    futures.append(handle.rpc("kvs.commit", payload))
failed = 0
for future in futures:
    try:
        future.get()
    except OSError as error:
        failed += 1
        print(error)
print(f"{failed} failed", flush=True)
