"""An instance whose directories its broker has made itself does not come back: when the broker is
killed, the shells end as well, and do not wait for it."""

import os
import select
import signal
import subprocess
import sys

import flux
from brokers import pause
from flux.job import JobspecV1, event_wait, submit

PATIENCE_MS = 60_000


def inside():
    """Starts a job, and says which processes its shell and the broker are."""
    handle = flux.Flux()
    jobspec = JobspecV1.from_command(["sleep", "inf"])
    jobspec.environment = dict(os.environ)
    event_wait(handle, submit(handle, jobspec), "start")
    shells = handle.rpc("job-exec.stats-get").get()["shells"]
    (shell,) = shells.values()
    print(shell["pid"], handle.attr_get("broker.pid"), shell["unit"], flush=True)
    sys.stdin.read()


def outside():
    environment = {name: value for name, value in os.environ.items() if name != "FLUX_URI"}
    with subprocess.Popen(
        ["flux", "start", "flux", "python", __file__, "inside"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as instance:
        shell, broker, unit = instance.stdout.readline().split()
        end = select.poll()
        end.register(os.pidfd_open(int(shell)), select.POLLIN)
        os.kill(int(broker), signal.SIGKILL)
        assert end.poll(PATIENCE_MS), "the shell waits for a broker that nobody starts again"
    # It has failed, and its status is kept until somebody asks for it. Nobody does, nor for its slice.
    while subprocess.run(["systemctl", "--user", "reset-failed", unit], check=False).returncode:
        pause(0.02)
    slices = unit.removesuffix(".service").replace("-", "_")
    subprocess.run(["systemctl", "--user", "stop", f"*{slices}_*.slice"], check=True)


if len(sys.argv) > 1:
    inside()
else:
    outside()
