"""usage: service-restart.py

Kills the brokers of a system instance, one by one and then all, while a job runs on all of them.
Each loses its run directory, as systemd removes it. The job must not notice. A second job loses the
records and the output of its shells as well. It must not notice either."""

import glob
import os
import shutil

from brokers import Brokers, pause

SIZE = 3
STATUS = 3


def names(brokers, job):
    return [line.split()[1] for line in brokers.flux("job", "eventlog", job).splitlines()]


def submit(brokers):
    """A job whose tasks each wait for somebody to open a gate."""
    gates = [brokers.path(f"gate-{rank}") for rank in range(SIZE)]
    for gate in gates:
        if not os.path.exists(gate):
            os.mkfifo(gate)
    script = f"cat {brokers.path('gate-')}$FLUX_TASK_RANK; exit {STATUS}"
    job = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", "sh", "-c", script).strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    return job, gates


def records(top, rank="*"):
    return glob.glob(f"{top}/state-{rank}/job-exec/*.record")


def restart(brokers, *ranks, lose):
    brokers.kill(*ranks)
    for rank in ranks if lose else []:
        assert records(brokers.top, rank), f"rank {rank} has no record to lose"
        shutil.rmtree(brokers.path(f"state-{rank}/job-exec"))
    brokers.start(*ranks)
    brokers.await_run(*ranks)


def ride(brokers, lose):
    job, gates = submit(brokers)
    for rank in range(1, SIZE):
        restart(brokers, rank, lose=lose)
    # What rank 0's KVS holds is on its disk.
    brokers.flux("kvs", "put", "--sync", "here=1")
    restart(brokers, *range(SIZE), lose=lose)
    for gate in gates:
        with open(gate, "w", encoding="utf-8"):
            pass
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    events = names(brokers, job)
    assert "exception" not in events, brokers.flux("job", "eventlog", job)
    finish = next(l for l in brokers.flux("job", "eventlog", job).splitlines() if " finish " in l)
    assert f"status={STATUS << 8}" in finish, finish
    drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}")
    assert drained == "", drained


def check_places(brokers):
    """Records are kept where they outlive the broker, and go with their jobs."""
    for rank in range(SIZE):
        assert os.path.isdir(brokers.path(f"state-{rank}/job-exec")), f"rank {rank}"
        assert not os.path.exists(brokers.path(f"run-{rank}/job-exec")), f"rank {rank}"
    brokers.flux("kvs", "put", "--sync", "here=2")


def await_no_records(brokers):
    """The last records go when a checkpoint holds that their job has ended. No event tells it."""
    while records(brokers.top):
        pause(0.02)


def check_log(brokers):
    """Nothing is to be set by hand."""
    with open(brokers.path("log"), encoding="utf-8") as log:
        said = [line for line in log if "job-exec" in line and (".warning[" in line or ".err[" in line)]
    assert not [line for line in said if "enable-linger" not in line], said


with Brokers(SIZE, as_service=True) as instance:
    check_log(instance)
    ride(instance, lose=False)
    check_places(instance)
    ride(instance, lose=True)
    check_places(instance)
    await_no_records(instance)
