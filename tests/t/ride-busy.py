"""usage: ride-busy.py PID PATH

Stops the broker of that process, and fills the queue of its socket. Starts a client of the resume
connector, which has to wait, lets the broker go on, and prints what the client prints."""

import os
import signal
import socket
import subprocess
import sys

PID, PATH = int(sys.argv[1]), sys.argv[2]


def fill():
    """As many connections as the broker lets wait."""
    waiting = []
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(PATH)
        except BlockingIOError:
            return waiting
        waiting.append(client)


def has_tried(client):
    """It sleeps, and has the timer of a connection; or it has ended."""
    if client.poll() is not None:
        return True
    fds = f"/proc/{client.pid}/fd"
    try:
        links = [os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)]
        with open(f"/proc/{client.pid}/stat", encoding="utf-8") as file:
            sleeps = file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False
    return sleeps and "anon_inode:[timerfd]" in links


os.kill(PID, signal.SIGSTOP)
try:
    waiting = fill()
    # Without the tries of flux_open(), in which the broker could go on.
    environment = dict(os.environ, FLUX_URI=f"resume://{PATH}", FLUX_LOCAL_CONNECTOR_RETRY_COUNT="0")
    command = ["flux", "getattr", "rank"]
    client = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    while not has_tried(client):
        os.sched_yield()
    assert client.poll() is None, "it has not waited"
finally:
    os.kill(PID, signal.SIGCONT)
    for other in waiting:
        other.close()
print(client.communicate()[0].strip())
sys.exit(client.returncode)
