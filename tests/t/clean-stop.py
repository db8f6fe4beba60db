"""usage: clean-stop.py

A clean stop of the instance leaves its jobs running, with nothing set by hand, and says so. What the
tasks of a job have written is there after it, also if nobody can write it again, because the shells
were killed meanwhile. Where the owner does not want it (exec.keep-jobs) jobs are canceled. So they are
where the module will not be there at the next start: nobody would own their processes."""

import contextlib
import os
import subprocess

from brokers import Brokers, pause

SIZE = 2
LINE = "written before the stop"
MODULE = os.path.join(os.environ["FLUX_MODULE_PATH_PREPEND"], "job-exec.so")
DROP_IN = os.path.join(os.environ["FLUX_MODPROBE_PATH_APPEND"], "modprobe.d", "job-exec.toml")


def units(job):
    listed = subprocess.run(
        ["systemctl", "--user", "list-units", "--plain", "--no-legend", f"shell-*-{job}-*"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split()[0] for line in listed.stdout.splitlines()]


def written(brokers, job):
    return brokers.flux("job", "eventlog", "-p", "guest.output", job).count(LINE)


def stop(brokers):
    job = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", "sh", "-c", f"echo {LINE}; exec sleep inf").strip()
    await_data = ["job", "wait-event", "-t60", "--waitcreate", "-p", "guest.output", "--count=2"]
    brokers.flux(*await_data, job, "data")
    assert written(brokers, job) == SIZE
    brokers.stop()
    killed = units(job)
    assert len(killed) == SIZE, killed
    subprocess.run(["systemctl", "--user", "kill", "--signal=SIGKILL"] + killed, check=True)
    brokers.start()
    brokers.await_run()
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    assert written(brokers, job) == SIZE, brokers.flux("job", "eventlog", "-p", "guest.output", job)


def shut_down(brokers):
    """By hand, while a job runs."""
    job = brokers.flux("submit", f"-N{SIZE}", "sleep", "inf").strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    environment = dict(os.environ, FLUX_URI=brokers.uri(0))
    said = subprocess.run(
        ["flux", "shutdown"], check=True, capture_output=True, text=True, env=environment
    )
    brokers.await_end(*range(SIZE))
    with open(brokers.path("log"), encoding="utf-8") as log:
        failed = [line for line in log if "failing pending" in line]
    assert not failed, failed
    return job, said.stdout + said.stderr


def shut_down_and_start(brokers):
    job, said = shut_down(brokers)
    assert "jobs that run are not canceled" in said, said
    assert len(units(job)) == SIZE, units(job)
    brokers.start()
    brokers.await_run()
    assert brokers.flux("jobs", "-no", "{state}", job).strip() == "RUN"
    brokers.flux("cancel", job)
    brokers.flux("job", "wait-event", "-t60", job, "clean")


def cancel_instead(brokers):
    brokers.stop()
    brokers.write("conf.d/keep.toml", "exec.keep-jobs = false\n")
    brokers.start()
    brokers.await_run()
    job, said = shut_down(brokers)
    assert "jobs that run are not canceled" not in said, said
    assert not units(job), units(job)
    brokers.start()
    brokers.await_run()
    assert brokers.flux("jobs", "-ano", "{result}", job).strip() == "CANCELED"


@contextlib.contextmanager
def away(path):
    """Flux loads job-exec.so.away as well."""
    elsewhere = os.path.join(os.environ["TMPDIR"], "away")
    os.rename(path, elsewhere)
    try:
        yield
    finally:
        os.rename(elsewhere, path)


@contextlib.contextmanager
def configured(brokers, line):
    brokers.write("conf.d/changed.toml", f"{line}\n")
    yield
    os.remove(brokers.path("conf.d/changed.toml"))


def cancel_before_going_back(brokers):
    start_tasks = os.path.join(os.environ["FLUX_MODPROBE_PATH_APPEND"], "rc1.d", "job-exec-rs.py")
    for change, why in (
        (away(MODULE), f"because Flux will load {brokers.run('config', 'builtin', 'module_path').strip()}"),
        (away(start_tasks), f"can't open file '{start_tasks}'"),
        (configured(brokers, 'exec.method = "fork"'), "exec.method is fork"),
        (configured(brokers, 'modules.alternatives.job-exec = "other"'), "Flux will load other"),
    ):
        with change:
            job, said = shut_down(brokers)
        assert "jobs that run are canceled\n" in said and why in said, (why, said)
        assert not units(job), (why, units(job))
        brokers.start()
        brokers.await_run()
        assert brokers.flux("jobs", "-ano", "{result}", job).strip() == "CANCELED"


def await_ended(brokers, job):
    """Until the job's units are gone, and their nodes given back: a unit that has not ended by itself is
    stopped on a node that was drained before. Returns what was logged."""
    for _ in range(120):
        log = brokers.flux("kvs", "eventlog", "get", "resource.eventlog")
        if not units(job) and log.count(" undrain ") == log.count("nobody owns its units:"):
            break
        pause(0.5)
    assert not units(job), units(job)
    assert log.count(" undrain ") == log.count("nobody owns its units:"), log
    return log


def drain_what_nobody_owns(brokers):
    """The brokers are killed: nothing is decided at a stop. flux-core's job-exec fails the job, if the
    instance has not forgotten it."""
    job = brokers.flux("submit", f"-N{SIZE}", "sleep", "inf").strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    with away(MODULE):
        brokers.kill(*range(SIZE))
        brokers.start()
        brokers.await_run()
        log = await_ended(brokers, job)
        for rank in range(SIZE):
            assert f"nobody owns its units: shell-{rank}-{job}-" in log, log
        brokers.stop()
    brokers.start()
    brokers.await_run()


def drain_below_another_rank_0(brokers):
    """The module is gone on rank 0 alone, where no shell runs, and its broker is killed. The others load the
    module again, and hear nothing of the job any more."""
    job = brokers.flux("submit", "--requires=rank:1", "sleep", "inf").strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    with away(MODULE):
        brokers.kill(*range(SIZE))
        brokers.start(0)
        while not has_job_exec(brokers, 0):
            pause(0.1)
    brokers.start(1)
    brokers.await_run()
    log = await_ended(brokers, job)
    assert f"nobody owns its units: shell-1-{job}-" in log, log
    brokers.stop()
    brokers.start()
    brokers.await_run()


def give_back_what_is_owned_again(brokers):
    """Rank 1 comes back without the module, and then with it: its job has gone on."""
    job = brokers.flux("submit", "--requires=rank:1", "sleep", "inf").strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    brokers.kill(1)
    with away(DROP_IN):
        brokers.start(1)
        brokers.await_run(1)
        drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}")
        assert drained.startswith("1 ") and f"shell-1-{job}-" in drained, drained
    brokers.kill(1)
    brokers.start(1)
    brokers.await_run(1)
    drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}")
    assert not drained, drained
    assert brokers.flux("jobs", "-no", "{state}", job).strip() == "RUN"
    brokers.flux("cancel", job)
    brokers.flux("job", "wait-event", "-t60", job, "clean")


def has_job_exec(brokers, rank):
    try:
        return "job-exec" in brokers.flux("module", "list", rank=rank)
    except subprocess.CalledProcessError:
        return False  # The broker is not that far.


def end_what_the_stop_could_not_reach(brokers):
    """Rank 1 has stopped when rank 0 cancels the job. So the job does not end before the limit of the stop,
    and is held in CLEANUP by a module that is not there any more when Flux is."""
    job = brokers.flux("submit", f"-N{SIZE}", "sleep", "inf").strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    with away(MODULE):
        for rank in (1, 0):
            brokers.processes[rank].terminate()
            brokers.await_end(rank)
        assert units(job), "all were ended: nothing is tried here"
        brokers.start()
        brokers.await_run()
        brokers.flux("job", "wait-event", "-t60", job, "clean")
        assert "exception" in brokers.flux("job", "eventlog", job)
        await_ended(brokers, job)
        brokers.stop()
    brokers.start()
    brokers.await_run()


with Brokers(SIZE, ["broker.cleanup-timeout=5"], as_service=True) as instance:
    stop(instance)
    shut_down_and_start(instance)
    drain_what_nobody_owns(instance)
    drain_below_another_rank_0(instance)
    give_back_what_is_owned_again(instance)
    end_what_the_stop_could_not_reach(instance)
    cancel_before_going_back(instance)
    cancel_instead(instance)
