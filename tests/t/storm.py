"""usage: flux python storm.py JOBID RANK SIZE SECONDS

What the shell of a hostile job says to job-exec, a few hundred times a second (more would only
leave the other jobs no processor): barrier entries that repeat,
skip and overflow, critical ranks of any kind, checkpoints, payloads of any kind and size, and
requests that are the owner's. It also writes several times what is kept of its output.
"""

import os
import random
import sys
import time

import flux
from flux.constants import FLUX_RPC_NORESPONSE

job, rank, size, seconds = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
handle = flux.Flux()
chance = random.Random(job + rank)
deep = "[" * 300 + "]" * 300


def entry():
    return chance.choice([0, 1, 1, 1, 2, 63, 64, 65, 2**31, 2**32 - 1, 2**64])


def ranks():
    return chance.choice(
        ["0", f"0-{size - 1}", f"{size}", "0-16777214", "x", "", ",".join(["0"] * 5000), "7" * 9999]
    )


def payload():
    return chance.choice(
        ["null", "[]", "{}", "7", '{"id":-1}', '{"id":1e999}', f'{{"id":{job},"x":{deep}}}',
         f'{{"id":{job},"rank":{rank},"x":"{"y" * 100000}"}}', f'{{"id":"{job}"}}']
    )


requests = [
    lambda: ("shell-barrier", {"id": job, "rank": rank, "entry": entry()}),
    lambda: ("shell-barrier", {"id": job, "rank": chance.choice([rank, 0, 7])}),
    lambda: ("critical-ranks", {"id": job, "ranks": ranks()}),
    lambda: ("checkpoint", {"id": job}),
    lambda: (chance.choice(["checkpoint", "critical-ranks", "shell-barrier"]), payload()),
    lambda: (chance.choice(["start", "lead", "shells", "order", "covered", "known"]), payload()),
]
sent = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    topic, content = chance.choice(requests)()
    nodeid = 0 if topic == "checkpoint" else flux.constants.FLUX_NODEID_ANY
    handle.rpc(f"job-exec.{topic}", content, nodeid=nodeid, flags=FLUX_RPC_NORESPONSE)
    sent += 1
    if sent % 20 == 0:
        os.write(1, os.urandom(15000))
        # The pace of the storm, and nothing that is waited for.
        time.sleep(0.05)
print(f"{sent} requests", file=sys.stderr)
