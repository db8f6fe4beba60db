"""usage: ride-bulk.py URI NAMESPACE MEGABYTES

Writes as fast as it is let, without waiting for answers, 64 KiB at a time, numbered. Says "ready"
before, and at the end how many failed."""

import base64
import sys

import flux

CHUNK = 64 << 10

handle = flux.Flux(sys.argv[1])
namespace = sys.argv[2]
count = int(sys.argv[3]) * 16
futures = []
print("ready", flush=True)
for number in range(count):
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
