"""Rank 0's broker is killed before a checkpoint holds a job that runs on another rank. The instance
has forgotten it, and its shell ends soon. Nothing else ends it: `peer-timeout` never passes."""

import os
import select

import flux
from brokers import Brokers
from flux.job import JobspecV1, event_wait, submit

CONFIG = """
[exec]
checkpoint-interval = "1h"
peer-timeout = "1h"
"""


def start_job(brokers):
    """Starts a job on rank 1, and returns its id and its shell."""
    handle = flux.Flux(brokers.uri(0))
    jobspec = JobspecV1.from_command(["sleep", "inf"])
    jobspec.setattr("system.constraints", {"ranks": ["1"]})
    jobspec.environment = dict(os.environ)
    job = submit(handle, jobspec)
    event_wait(handle, job, "start")
    (shell,) = flux.Flux(brokers.uri(1)).rpc("job-exec.stats-get").get()["shells"].values()
    return job, os.pidfd_open(int(shell["pid"]))


def jobs(brokers):
    listed = flux.Flux(brokers.uri(0)).rpc("job-manager.list", {"max_entries": 0}).get()
    return [job["id"] for job in listed["jobs"]]


def restart(brokers):
    brokers.kill(0)
    brokers.start(0)
    # The next broker of rank 0 sends it away.
    brokers.await_end(1)
    brokers.start(1)
    brokers.await_run()


brokers = Brokers(2, as_service=True)
brokers.write("conf.d/exec.toml", CONFIG)
with brokers:
    job, shell = start_job(brokers)
    restart(brokers)
    # A job that runs for 10 s is in a checkpoint: it was not forgotten, and ends if it is cancelled.
    while job in jobs(brokers):
        brokers.flux("cancel", str(job))
        brokers.flux("job", "wait-event", "-t60", str(job), "clean")
        job, shell = start_job(brokers)
        restart(brokers)
    end = select.poll()
    end.register(shell, select.POLLIN)
    assert end.poll(600_000), "the shell of a job that nobody knows lives on"
