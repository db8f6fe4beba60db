"""Shells ask the rank above them about their job, and their own rank when that one's broker is killed."""

import os
import subprocess

import flux
from brokers import Brokers, pause

TEXT = "one\ntwo\n"


def watches(brokers, rank):
    """How many watches of R and of logs of jobs job-info has on a rank."""
    stats = flux.Flux(brokers.uri(rank)).rpc("job-info.stats-get").get()
    return stats["update_watchers"], stats["guest_watchers"]


def await_watches(brokers, rank, number):
    while watches(brokers, rank) != (number, number):
        pause(0.05)


with Brokers(3, as_service=True) as instance:
    job = instance.flux("submit", "-N2", "--requires=ranks:1-2", "cat").strip()
    instance.flux("job", "wait-event", "-t60", "-p", "guest.exec.eventlog", job, "shell.start")
    await_watches(instance, 1, 2)
    assert watches(instance, 2) == (0, 0), "rank 2 has loaded it, too"
    instance.kill(1)
    instance.start(1)
    instance.await_run(1)
    await_watches(instance, 2, 1)
    environment = dict(os.environ, FLUX_URI=instance.uri(0))
    attach = ["flux", "job", "attach", job]
    end = subprocess.run(attach, env=environment, input=TEXT, capture_output=True, text=True)
    assert (end.returncode, sorted(end.stdout)) == (0, sorted(2 * TEXT)), end
