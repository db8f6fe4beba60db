"""usage: ride-away.py SECONDS MEGABYTES

Kills the only broker for so long, while a client writes so much. Looks at what the client needs
of memory and of the processor meanwhile, and that nothing is lost."""

import os
import subprocess
import sys

from brokers import Brokers, pause

SECONDS, MEGABYTES = float(sys.argv[1]), int(sys.argv[2])
NAMESPACE = "ride"
CHUNK = 64 << 10
# What the connector may keep: requests, done commits, and one message beyond each limit, in
# base64. The client's own heap has room for as much again, which libc does not give back.
MEMORY_MAX = 2 * (16 + 8 + 1) << 20


def status(process, name):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


def cpu(process):
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ride(brokers):
    brokers.flux("kvs", "namespace", "create", NAMESPACE)
    brokers.checkpoint(NAMESPACE)
    here = os.path.dirname(os.path.abspath(__file__))
    uri = brokers.uri(0, "resume")
    command = ["flux", "python", f"{here}/ride-bulk.py", uri, NAMESPACE, str(MEGABYTES)]
    pipe = subprocess.PIPE
    client = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert client.stdout.readline() == "ready\n"
    before = status(client, "VmRSS")
    brokers.kill()
    client.stdin.write("go on\n")
    client.stdin.flush()
    # Until it is held back.
    pause(min(2, SECONDS / 2))
    worked = cpu(client)
    pause(SECONDS - min(2, SECONDS / 2))
    idle = cpu(client) - worked
    held = status(client, "VmRSS")
    brokers.start()
    brokers.await_run()
    brokers.restore(NAMESPACE)
    said = client.stdout.read()
    assert client.wait() == 0 and said == "0 failed\n", said
    return before, held, idle


def check(brokers, before, held, idle):
    got = brokers.flux("kvs", "get", "--raw", "-N", NAMESPACE, "log")
    expected = "".join(f"{number:08d}" * (CHUNK // 8) for number in range(MEGABYTES * 16))
    assert got == expected, f"{len(got)} bytes, not {len(expected)}, or not the same"
    grown = held - before
    assert grown < MEMORY_MAX, f"{grown >> 20} MiB are more than {MEMORY_MAX >> 20}"
    print(
        f"{MEGABYTES} MiB through an outage of {SECONDS} s: the client grew by {grown >> 20} MiB,"
        f" and took {idle:.2f} s of CPU in the last {SECONDS - min(2, SECONDS / 2):.0f} s of it"
    )
    # A client that spins takes all of it.
    assert idle < (SECONDS - min(2, SECONDS / 2)) / 4, "it spins"


with Brokers(1) as brokers:
    check(brokers, *ride(brokers))
