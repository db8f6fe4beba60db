"""usage: kept.py

All brokers are stopped and started again while a job has a file in its FLUX_JOB_TMPDIR, which it reads
only then. The directory of a shell that is killed meanwhile is gone when its broker is back."""

import os
import signal
import sys
import time

from instance import SIZE, pause, started, systemctl
from left import restart_of

PATIENCE_S = 60
# The ranks of the two jobs.
GOES_ON, KILLED = 1, 2
# Data, and no path: it has more than one line (flux-core `Jobspec.add_file()`).
TEXT = "still\nhere\n"


def await_true(what, condition):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"gave up waiting until {what}"
        # No event tells.
        pause(0.02)


def submit(instance, rank, *command):
    where = ["submit", "-N1", "-n1", f"--requires=rank:{rank}", "--cwd=/", f"--add-file=kept={TEXT}"]
    job = instance.flux(*where, "sh", "-c", *command).strip()
    instance.flux("job", "wait-event", f"-t{PATIENCE_S}", "-p", "exec", job, "shell.start")
    return job


def directories(instance, rank):
    return [name for name in os.listdir(instance.rundir(rank)) if name.startswith("jobtmp-")]


def units(rank):
    return systemctl("list-units", "--plain", "--no-legend", f"shell-{rank}-*").split()[:1]


def restart(instance, meanwhile):
    """As `systemctl restart`, with something done while no broker runs."""
    instance.hold(range(SIZE))
    try:
        systemctl("restart", "--no-block", *(instance.unit(rank) for rank in range(SIZE)))
        await_true("they stop", lambda: not any(instance.pid(rank) for rank in range(SIZE)))
        meanwhile()
    finally:
        instance.let_go(range(SIZE))
    instance.await_all()


def kill_shell(rank):
    pid = int(systemctl("show", "-P", "MainPID", *units(rank)))
    os.kill(pid, signal.SIGKILL)
    await_true("the shell has ended", lambda: not os.path.exists(f"/proc/{pid}/exe"))


def await_account(instance, rank, account):
    await_true(f"rank {rank} says {account}", lambda: restart_of(instance, rank) == account)


def play(instance):
    gate = instance.path("gate")
    os.mkfifo(gate)
    goes_on = submit(instance, GOES_ON, f"cat {gate}; cat $FLUX_JOB_TMPDIR/kept")
    killed = submit(instance, KILLED, "sleep inf")
    restart(instance, lambda: kill_shell(KILLED))
    found = {"found": 1, "running": 0, "ended": 0, "lost": 0, "never-started": 0, "unwanted": 0}
    await_account(instance, GOES_ON, found | {"running": 1})
    await_account(instance, KILLED, found | {"ended": 1})
    for rank in set(range(SIZE)) - {GOES_ON, KILLED}:
        await_account(instance, rank, found | {"found": 0})
    assert len(directories(instance, GOES_ON)) == 1, directories(instance, GOES_ON)
    assert directories(instance, KILLED) == []
    with open(gate, "w", encoding="utf-8"):
        pass
    for job in (goes_on, killed):
        instance.flux("job", "wait-event", f"-t{PATIENCE_S}", job, "clean")
    assert instance.flux("job", "attach", goes_on) == TEXT
    assert directories(instance, GOES_ON) == []


with started(peer_timeout=60) as one:
    play(one)
sys.exit()
