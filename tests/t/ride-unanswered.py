"""Types into a job through another broker, which is killed before it passes the shell's answer on. The
job ends by that input while that broker is away. Who has typed must be shown the job's end."""

import os
import subprocess

import flux
from brokers import Brokers, pause

TEXT = "one\ntwo\n"


def signal_shell(name):
    subprocess.run(["systemctl", "--user", "kill", f"--signal={name}", "shell-0-*"], check=True)


with Brokers(2, as_service=True) as instance:
    job = instance.flux("submit", "--requires=rank:0", "cat").strip()
    instance.flux("job", "wait-event", "-t60", "-p", "guest.exec.eventlog", job, "shell.start")
    payload = {"id": int(instance.flux("job", "id", job))}
    flux.Flux(instance.uri(0)).rpc("job-exec.checkpoint", payload, nodeid=0).get()
    client = subprocess.Popen(
        ["flux", "job", "attach", "--unbuffered", job],
        env=dict(os.environ, FLUX_URI=instance.uri(1, "resume")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    client.stdin.write(TEXT)
    client.stdin.flush()
    shown = client.stdout.readline()
    signal_shell("STOP")
    client.stdin.close()
    pause(1)  # it is on its way to the shell
    instance.kill(1)
    signal_shell("CONT")
    # The shell has had the end of its input, else it would not end.
    instance.flux("job", "wait-event", "-t60", job, "clean")
    instance.start(1)
    instance.await_run(1)
    out, err = shown + client.stdout.read(), client.stderr.read()
    assert (client.wait(), out) == (0, TEXT), (client.returncode, out, err)
