"""usage: late.py

A shell starts after the KVS has gone back, and finds the others of its job in the barrier, where
they have waited since before. What they had written must be there when it is let go. The leader's
shell stands still until then, so that it can't be there by chance."""

import json
import os
import signal
import subprocess
import sys
import time

from instance import pause, started, systemctl
from jobs import PYTHON, SHELL, exited

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 60
# A shell that is let go is in the next barrier after some 10 ms.
HELD_S = 1
STATUS = 3


def await_true(what, condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"gave up waiting until {what}"
        # No event tells.
        pause(0.02)


def entered(instance, rank):
    """How often the only shell on that rank has, as its record has it."""
    names = [name for name in os.listdir(instance.records(rank)) if name.endswith(".record")]
    if not names:
        return 0
    with open(f"{instance.records(rank)}/{names[0]}", encoding="utf-8") as record:
        notes = [json.loads(line)["note"] for line in record if line.startswith('{"note"')]
    return max((note["value"] for note in notes if note["key"] == "barrier-entered"), default=0)


def leader_shell():
    """Its pid."""
    units = systemctl("list-units", "--plain", "--no-legend", "shell-0-*")
    return int(systemctl("show", "-P", "MainPID", units.split()[0]))


def submit(instance):
    directory = instance.path("jobs", "late")
    os.makedirs(directory)
    command = ["submit", "-N3", "-n3", "--requires=rank:0-2", "--cwd=/", *SHELL]
    command += [f"--env=CHAOS_JOB={instance.tag}-late", PYTHON, "-I", f"{HERE}/task.py"]
    return instance.flux(*command, directory, str(STATUS), "lines", "10", "1", "0.001").strip()


def play(instance):
    # Rank 1 hears of the job only when it is back.
    instance.signal([1], signal.SIGSTOP)
    job = submit(instance)
    instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "alloc")
    await_true("ranks 0 and 2 wait", lambda: all(entered(instance, rank) for rank in (0, 2)))
    shell = leader_shell()
    os.kill(shell, signal.SIGSTOP)
    # The job is not to be forgotten. No reference to its guest namespace is there yet.
    instance.flux("kvs", "put", "--sync", "late=1")
    instance.signal([0, 1], signal.SIGKILL)
    try:
        # All ranks have answered the leader. Rank 2 has lost its parent, and comes back late.
        instance.await_run(0)
        instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "start")
        await_true("rank 1 is there, too", lambda: entered(instance, 1))
        # Nothing tells that it is not let go.
        pause(HELD_S)
        assert entered(instance, 1) == 1, "rank 1 is let go before the leader's shell is back"
    finally:
        os.kill(shell, signal.SIGCONT)
    instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "clean")
    said = instance.flux("job", "eventlog", job)
    return " exception " not in said and f"finish status={exited(STATUS)}" in said, said


def main():
    with started(peer_timeout=60) as instance:
        try:
            is_good, said = play(instance)
        except (AssertionError, subprocess.CalledProcessError) as error:
            is_good, said = False, str(error)
    if not is_good:
        print(said)
    return not is_good


sys.exit(main())
