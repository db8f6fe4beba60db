"""usage: flux python shells.py [--epilog] RANK JOBID DIGEST USERID PROGRAM...

Asks the module on RANK, as a leader does, for the shell of a job that nobody has submitted, and
ends when it runs: then nobody leads it. With --epilog the job gets the epilog of the site.
"""

import os
import sys
import time

import flux

has_epilog = sys.argv[1] == "--epilog"
if has_epilog:
    sys.argv.pop(1)
rank, job, digest, userid = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
request = {
    "version": 7,
    "stream": 1,
    "id": job,
    "parent": rank,
    "leader": rank,
    "issued": time.time(),
    "generation": 1,
    "ranks": str(rank),
    "arity": 2,
    "mode": "start",
    "command": {
        "userid": userid,
        "size": 1,
        "multiuser": userid != os.getuid(),
        "digest": digest,
        "argv": sys.argv[5:],
        "environment": {},
    },
}
if has_epilog:
    request["command"]["scripts"] = {"ranks": str(rank), "epilog": "each-rank"}
stream = flux.Flux().rpc("job-exec.shells", request, nodeid=rank, flags=flux.constants.FLUX_RPC_STREAMING)
while True:
    reports = [report["report"] for report in stream.get()["reports"]]
    print(reports, flush=True)
    if "running" in reports or any("failed" in report for report in reports):
        break
    stream.reset()
