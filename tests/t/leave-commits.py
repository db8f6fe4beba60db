"""usage: flux python leave-commits.py ID STOP

Leaves commits with the module of rank 0, one after the other, until the file STOP is there. Prints a
line for each answer that differs from the one before."""

import errno
import os
import sys

import flux

PAYLOAD = {
    "id": int(sys.argv[1]),
    "client": "1f567980acae513d",
    "commits": [{"number": 1, "commit": {"flags": 0, "ops": []}}],
}


def leave(handle):
    try:
        handle.rpc("job-exec.keep-commits", PAYLOAD, nodeid=0).get()
        return "kept"
    except OSError as error:
        return f"{errno.errorcode[error.errno]}: {error.strerror}"


flux_handle = flux.Flux()
before = None
while not os.path.exists(sys.argv[2]):
    answer = leave(flux_handle)
    if answer != before:
        print(answer, flush=True)
    before = answer
