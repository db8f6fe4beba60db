"""A shell whose rank's KVS is behind rank 0's finds its R, and its input."""

import os
import subprocess

import flux
from brokers import Brokers, pause

NAMESPACE = {"namespace": "primary"}


def await_shell(brokers, job):
    """Waits until the job's shell watches its input on rank 0."""
    handle = flux.Flux(brokers.uri(0))
    while handle.rpc("job-info.stats-get").get()["guest_watchers"] == 0:
        assert "exception" not in brokers.flux("job", "eventlog", job)
        pause(0.05)


with Brokers(2, as_service=True) as instance:
    behind = flux.Flux(instance.uri(1))
    behind.rpc("kvs.setroot-pause", NAMESPACE).get()
    work = instance.flux("submit", "--requires=ranks:1", "cat").strip()
    try:
        await_shell(instance, work)
    finally:
        # What rank 1 commits is not answered before.
        behind.rpc("kvs.setroot-unpause", NAMESPACE).get()
    environment = dict(os.environ, FLUX_URI=instance.uri(0))
    attach = ["flux", "job", "attach", work]
    subprocess.run(attach, env=environment, stdin=subprocess.DEVNULL, check=True)
