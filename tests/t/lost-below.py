"""A broker whose parent was killed shuts down, and waits for the broker below it. That one is killed
meanwhile. Both have to come back, and the job that runs on their nodes must not notice."""

import os
import signal

import flux
from brokers import Brokers

SIZE = 3
STATUS = 3
# A broker that does not notice waits for ever.
PATIENCE = 60


def submit(brokers):
    """A job on the two ranks, whose tasks wait for somebody to open their gates."""
    gates = [brokers.path(f"gate-{rank}") for rank in (1, 2)]
    for gate in gates:
        os.mkfifo(gate)
    script = f"cat {brokers.path('gate-')}$((FLUX_TASK_RANK + 1)); exit {STATUS}"
    requires = "--requires=rank:1-2"
    job = brokers.flux("submit", requires, "-N2", "-n2", "sh", "-c", script).strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    return job, gates


def await_shutdown(states):
    """Waits until a broker that was in RUN has begun to wait for those below it."""
    running = states.get()["state"]
    states.reset()
    # CLEANUP, then SHUTDOWN (flux-core broker/state_machine.h).
    while states.get()["state"] < running + 2:
        states.reset()


def check(brokers):
    job, gates = submit(brokers)
    brokers.flux("kvs", "put", "--sync", "here=1")
    # It does not leave when its parent does.
    brokers.processes[2].send_signal(signal.SIGSTOP)
    streaming = flux.constants.FLUX_RPC_STREAMING
    states = flux.Flux(brokers.uri(1)).rpc("state-machine.monitor", flags=streaming)
    brokers.kill(0)
    # It sends away who belongs to the one before it.
    brokers.start(0)
    await_shutdown(states)
    brokers.kill(2)
    brokers.processes[1].wait(timeout=PATIENCE)
    brokers.await_end(1)
    brokers.start(1, 2)
    brokers.await_run()
    for gate in gates:
        with open(gate, "w", encoding="utf-8"):
            pass
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    eventlog = brokers.flux("job", "eventlog", job)
    finish = next(line for line in eventlog.splitlines() if " finish " in line)
    assert f"status={STATUS << 8}" in finish and " exception " not in eventlog, eventlog


with Brokers(SIZE, ["tbon.topo=kary:1"], as_service=True) as instance:
    check(instance)
