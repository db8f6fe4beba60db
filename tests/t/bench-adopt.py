"""usage: bench-adopt.py JOBS. See tests/bench-adopt."""

import json
import os
import sys
import time

import flux
import flux.job
from brokers import Brokers, pause

JOBS = int(sys.argv[1])
# Between two looks at the statistics, in seconds.
LOOK = 0.05


def submit(brokers):
    """Jobs that run until they are cancelled."""
    handle = flux.Flux(brokers.uri(0))
    spec = flux.job.JobspecV1.from_command(["sleep", "inf"])
    spec.environment = dict(os.environ)
    ids = [flux.job.submit(handle, spec) for _ in range(JOBS)]
    for jobid in ids:
        flux.job.event_wait(handle, jobid, "start")
    # What rank 0's KVS holds is on its disk: no job is forgotten.
    brokers.flux("kvs", "put", "--sync", "here=1")


def running(brokers):
    """How many jobs the service leads that have started."""
    stats = json.loads(brokers.flux("module", "stats", "job-exec"))
    return sum(job["running"] for job in stats["jobs"].values())


def took(brokers):
    """CPU time in seconds and resident memory in MiB of rank 0's broker."""
    pid = brokers.processes[0].pid
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        resident = next(line for line in file if line.startswith("VmRSS"))
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), int(resident.split()[1]) / 1024


def restart(brokers, jobs):
    """Kills the broker, and waits until the next one has found so many jobs."""
    brokers.kill(0)
    begin = time.monotonic()
    brokers.start(0)
    brokers.await_run(0)
    in_run = time.monotonic() - begin
    while running(brokers) < jobs:
        pause(LOOK)
    return in_run, time.monotonic() - begin, *took(brokers)


def show(name, result):
    in_run, found, cpu, memory = result
    print(f"{name:12} RUN after {in_run:5.2f} s, all found after {found:5.2f} s, "
          f"{cpu:5.2f} s of CPU, {memory:4.0f} MiB")


with Brokers(1, as_service=True, cores=JOBS) as instance:
    show("no jobs", restart(instance, 0))
    submit(instance)
    show(f"{JOBS} jobs", restart(instance, JOBS))
    instance.flux("cancel", "--all")
    instance.flux("queue", "drain")
