"""usage: held-jobs.py killed | stopped | reloaded | undisturbed

Cancels a job whose tasks do not end at SIGTERM, and then takes the broker of rank 0 away, or its
module. The job must stay in CLEANUP with its cores until its tasks end, and come to its end then as
if nothing had been."""

import base64
import json
import os
import subprocess
import sys

import flux
from brokers import Brokers

SIZE = 2
# A task waits at a gate. It is not killed before it is let through.
CONFIG = """
[exec]
kill-timeout = "1000s"
"""
# Only the module that is unloaded holds the job.
NO_CHECKPOINT = 'checkpoint-interval = "1000s"\n'
TASK = "trap : TERM; echo before; until read -r _ <{gate}-$FLUX_TASK_RANK; do :; done; echo after"


def events(brokers, job):
    said = brokers.flux("job", "eventlog", "-fjson", job)
    return [json.loads(line) for line in said.splitlines()]


def names(brokers, job):
    return [event["name"] for event in events(brokers, job)]


def submit(brokers):
    gates = [brokers.path(f"gate-{rank}") for rank in range(SIZE)]
    for gate in gates:
        os.mkfifo(gate)
    script = TASK.format(gate=brokers.path("gate"))
    job = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", "bash", "-c", script).strip()
    # The traps are set.
    wait = ("job", "wait-event", "-W", "-t60", "-c2", "-p", "guest.output", job, "data")
    brokers.flux(*wait)
    return job, gates


def commits():
    """Commits that keep the KVS busy for seconds."""
    data = base64.b64encode(os.urandom(4 << 20)).decode()
    value = {"ver": 1, "type": "val", "data": data}
    ops = [[{"key": f"large.{n}", "flags": 0, "dirent": value}] for n in range(20)]
    return [json.dumps({"namespace": "primary", "flags": 0, "ops": op}) for op in ops]


def disturb(brokers, way):
    if way == "reloaded":
        # The module that comes up looks for the job before the KVS has the hold.
        handle = flux.Flux(brokers.uri(0))
        brokers.commits = [handle.rpc("kvs.commit", commit) for commit in brokers.commits]
        return brokers.flux("module", "reload", "job-exec")
    if way == "stopped":
        brokers.stop()
        brokers.start()
    else:
        # The service posts the hold before the checkpoint that has the exception.
        brokers.flux("job", "wait-event", "-t60", brokers.job, "epilog-start")
        brokers.flux("kvs", "put", "--sync", "here=1")
        brokers.kill()
        brokers.start()
    return brokers.await_run(*range(SIZE))


def output(brokers, job):
    """The lines of all tasks. The status of attach is the job's."""
    environment = dict(os.environ, FLUX_URI=brokers.uri(0))
    command = ("flux", "job", "attach", job)
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    return run.stdout.split()


def state(brokers, job):
    return brokers.flux("jobs", "-no", "{state}", job).strip()


def check_held(brokers, job):
    """The service has the job again, and nobody else gets its cores."""
    brokers.flux("job", "wait-event", "-t60", job, "epilog-start")
    assert state(brokers, job) == "CLEANUP", state(brokers, job)
    allocated = brokers.flux("resource", "list", "-s", "allocated", "-no", "{nnodes}").strip()
    assert allocated == str(SIZE), allocated


def check_end(brokers, job):
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    said = names(brokers, job)
    for name in ("exception", "finish", "epilog-start", "epilog-finish", "free", "clean"):
        assert said.count(name) == 1, f"{name}: {said}"
    order = ["exception", "epilog-start", "finish", "epilog-finish", "free", "clean"]
    assert [name for name in said if name in order] == order, said
    final = [e["context"]["final"] for e in events(brokers, job) if e["name"] == "release"]
    assert final.count(True) == 1 and final[-1], final
    lines = sorted(output(brokers, job))
    assert lines == ["after"] * SIZE + ["before"] * SIZE, lines
    drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}")
    assert drained == "", drained


def play(brokers, way):
    brokers.commits = commits() if way == "reloaded" else []
    job, gates = submit(brokers)
    brokers.job = job
    brokers.flux("cancel", job)
    brokers.flux("job", "wait-event", "-t60", job, "exception")
    disturb(brokers, way)
    check_held(brokers, job)
    for gate in gates:
        with open(gate, "w", encoding="utf-8") as file:
            file.write("\n")
    check_end(brokers, job)


def play_undisturbed(brokers):
    job = brokers.flux("submit", f"-N{SIZE}", "true").strip()
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    assert "epilog-start" not in names(brokers, job), names(brokers, job)


instance = Brokers(SIZE, as_service=True)
has_no_checkpoint = sys.argv[1] in ("reloaded", "undisturbed")
instance.write("conf.d/exec.toml", CONFIG + NO_CHECKPOINT * has_no_checkpoint)
with instance:
    if sys.argv[1] == "undisturbed":
        play_undisturbed(instance)
    else:
        play(instance, sys.argv[1])
