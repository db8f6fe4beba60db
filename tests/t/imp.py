#!/usr/bin/python3
"""usage: imp.py exec SHELL JOBID (as job-exec starts it)

Stands in for the setuid IMP (RFC 15) where no real one can be had: it asks the helper, which must
do without flux-core's sdbus, for the signed jobspec. It runs the shell as a child,
as user 42 if root runs it, reports that it is ready, passes SIGTERM on, and for SIGUSR1 kills
all processes of its cgroup but itself. When the shell has ended it reports that it is stopping,
and waits until nothing else is in its cgroup. Its status is the shell's.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

GUEST = 42


def own_cgroup():
    for line in open("/proc/self/cgroup"):
        if line.startswith("0::"):
            return "/sys/fs/cgroup" + line[3:].strip()
    sys.exit("imp.py: no cgroup2")


def others():
    pids = map(int, open(f"{cgroup}/cgroup.procs").read().split())
    return [pid for pid in pids if pid != os.getpid()]


def kill_all(*_):
    for pid in others():
        os.kill(pid, signal.SIGKILL)


def notify(state):
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        address = "\0" + path[1:] if path.startswith("@") else path
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(state, address)


def ask_helper():
    """The job's signed jobspec, as the IMP reads it."""
    helper = shlex.split(os.environ["FLUX_IMP_EXEC_HELPER"])
    answer = subprocess.run(helper, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(answer)["J"]


# shells.py starts shells of no job.
if "FLUX_IMP_EXEC_HELPER" in os.environ:
    ask_helper()
cgroup = own_cgroup()
signal.signal(signal.SIGUSR1, kill_all)
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    os.environ.pop("NOTIFY_SOCKET", None)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(GUEST)
        os.setuid(GUEST)
    os.execv(sys.argv[2], sys.argv[2:])
signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
notify(b"READY=1")
status = os.waitpid(child, 0)[1]
notify(b"STOPPING=1")
# Polled: they are nobody's children here, and the kernel says only when a cgroup is quite empty.
while others():
    time.sleep(0.05)
if os.WIFSIGNALED(status):
    sys.exit(128 + os.WTERMSIG(status))
sys.exit(os.WEXITSTATUS(status))
