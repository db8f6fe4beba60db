"""usage: ride-sdmon.py

A node on which a job runs takes new jobs as soon as its broker is back, though `sdmon` holds nodes
back on which units of Flux run."""

import os

from brokers import Brokers

SIZE = 2
CONFIG = """
[systemd]
enable = true
"""
STATUS = 3


def submit(brokers, gates):
    for gate in gates:
        os.mkfifo(gate)
    script = f"read -r _ <{brokers.path('gate')}-$FLUX_TASK_RANK; exit {STATUS}"
    job = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", "sh", "-c", script).strip()
    brokers.flux("job", "wait-event", "-t60", "-p", "guest.exec.eventlog", job, "shell.start")
    # A job manager that has forgotten it is another test's.
    brokers.flux("kvs", "put", "--sync", "here=1")
    return job


def ride(brokers):
    gates = [brokers.path(f"gate-{rank}") for rank in range(SIZE)]
    job = submit(brokers, gates)
    for ranks in (1,), range(SIZE):
        brokers.kill(*ranks)
        brokers.start(*ranks)
        brokers.await_run(*ranks)
        assert "sdmon" in brokers.flux("module", "list"), "nothing is tested"
        new = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", "true").strip()
        brokers.flux("job", "wait-event", "-t60", new, "clean")
    for gate in gates:
        with open(gate, "w", encoding="utf-8") as file:
            file.write("\n")
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    eventlog = brokers.flux("job", "eventlog", job)
    assert " exception " not in eventlog, eventlog
    assert f"finish status={STATUS << 8}" in eventlog, eventlog


# sdmon also asks a system bus. There need not be one, and this one has no units flux-*.
os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = os.environ["DBUS_SESSION_BUS_ADDRESS"]
instance = Brokers(SIZE, as_service=True)
instance.write("conf.d/systemd.toml", CONFIG)
with instance:
    ride(instance)
