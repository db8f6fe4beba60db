"""usage: ride-input.py JOBS

Types into jobs as soon as the broker of their shells is back. The shells are not: they may need
seconds to connect again, here because they are stopped. What is typed must arrive all the same."""

import os
import subprocess
import sys

import flux
from brokers import Brokers, pause

JOBS = int(sys.argv[1])
TEXT = "one\ntwo\n"


def await_checkpoint(brokers, job):
    """Until the KVS has durably that the job's shell has started."""
    payload = {"id": int(brokers.flux("job", "id", job))}
    flux.Flux(brokers.uri(0)).rpc("job-exec.checkpoint", payload, nodeid=0).get()


def signal_shells(name):
    subprocess.run(["systemctl", "--user", "kill", f"--signal={name}", "shell-0-*"], check=True)


def attach(brokers, job):
    return subprocess.Popen(
        ["flux", "job", "attach", job],
        env=dict(os.environ, FLUX_URI=brokers.uri(0, "resume")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


with Brokers(1, as_service=True) as instance:
    jobs = [instance.flux("submit", "cat").strip() for _ in range(JOBS)]
    for job in jobs:
        instance.flux("job", "wait-event", "-t60", "-p", "guest.exec.eventlog", job, "shell.start")
        await_checkpoint(instance, job)
    signal_shells("STOP")
    instance.kill(0)
    instance.start(0)
    instance.await_run(0)
    clients = [attach(instance, job) for job in jobs]
    for client in clients:
        client.stdin.write(TEXT)
        client.stdin.flush()
    pause(1)
    signal_shells("CONT")
    for client in clients:
        out, err = client.communicate()
        assert (client.returncode, out) == (0, TEXT), (client.returncode, out, err)
