"""usage: late.py

A shell starts after the KVS has gone back, and finds the others of its job in the barrier, where
they have waited since before. What they had written must be there when it is let go. The leader's
shell stands still until then, so that it can't be there by chance. Its broker is killed, or ends in
order because rank 0's was killed; then its module keeps what waits in the barrier."""

import json
import os
import signal
import subprocess
import sys
import time

from instance import SIZE, pause, started, systemctl
from jobs import PYTHON, SHELL, exited

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 60
# A shell that is let go is in the next barrier after some 10 ms.
HELD_S = 1
STATUS = 3
# The job's ranks, the one that is late, and the brokers that are killed. With kary:2 rank 3 is a child
# of 1, the others are children of 0.
KILLED = ([0, 1, 2], 1, [0, 1])
IN_ORDER = ([1, 2, 3], 2, [0, 2])


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


def shell_on(rank):
    """Its pid."""
    units = systemctl("list-units", "--plain", "--no-legend", f"shell-{rank}-*")
    return int(systemctl("show", "-P", "MainPID", units.split()[0]))


def submit(instance, ranks):
    directory = instance.path("jobs", f"late-{ranks[0]}")
    os.makedirs(directory)
    where = f"--requires=rank:{ranks[0]}-{ranks[-1]}"
    command = ["submit", "-N3", "-n3", where, "--cwd=/", *SHELL]
    command += [f"--env=CHAOS_JOB={instance.tag}-late", PYTHON, "-I", f"{HERE}/task.py"]
    return instance.flux(*command, directory, str(STATUS), "lines", "10", "1", "0.001").strip()


def play(instance, ranks, late, killed):
    # The scheduler hears of a rank a moment after that is in RUN.
    free = ("resource", "list", "-s", "free", "-no", "{nnodes}")
    await_true("all ranks can get a job", lambda: instance.flux(*free).strip() == str(SIZE))
    # That rank hears of the job only when it is back.
    instance.signal([late], signal.SIGSTOP)
    job = submit(instance, ranks)
    instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "alloc")
    others = [rank for rank in ranks if rank != late]
    await_true("the others wait", lambda: all(entered(instance, rank) for rank in others))
    shell = shell_on(ranks[0])
    os.kill(shell, signal.SIGSTOP)
    # The job is not to be forgotten. No reference to its guest namespace is there yet.
    instance.flux("kvs", "put", "--sync", "late=1")
    instance.signal(killed, signal.SIGKILL)
    try:
        # All ranks have answered the leader. Those that have lost their parent come back late.
        instance.await_run(0)
        instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "start")
        await_true("the last rank is there, too", lambda: entered(instance, late))
        # Nothing tells that it is not let go.
        pause(HELD_S)
        assert entered(instance, late) == 1, "it is let go before the leader's shell is back"
    finally:
        os.kill(shell, signal.SIGCONT)
    instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "clean")
    said = instance.flux("job", "eventlog", job)
    return " exception " not in said and f"finish status={exited(STATUS)}" in said, said


def is_good(how):
    with started(peer_timeout=60) as instance:
        try:
            good, said = play(instance, *how)
        except (AssertionError, subprocess.CalledProcessError) as error:
            good, said = False, str(error)
    if not good:
        print(how, said)
    return good


sys.exit(not all([is_good(how) for how in (KILLED, IN_ORDER)]))
