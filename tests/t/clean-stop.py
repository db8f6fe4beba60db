"""usage: clean-stop.py

What the tasks of a job have written is there after a clean stop of the instance, also if nobody can
write it again, because the shells were killed meanwhile."""

import os
import subprocess

from brokers import Brokers

SIZE = 2
LINE = "written before the stop"

# Jobs are to outlive the stop (README.md).
os.environ["FLUX_DISABLE_JOB_CLEANUP"] = "1"


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


with Brokers(SIZE, as_service=True) as instance:
    stop(instance)
