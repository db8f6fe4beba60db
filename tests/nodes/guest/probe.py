"""usage: probe.py USER...

What is on this node of jobs, as JSON: units of job shells in the systemd of these users, records, and
processes with a job's mark in their environment or a job's program, each with its cgroup."""

import json
import os
import pwd
import subprocess
import sys

PROGRAMS = ("flux-shell", "flux-imp")
RECORDS = "/var/lib/flux/job-exec"


def units(user):
    runtime = f"/run/user/{pwd.getpwnam(user).pw_uid}"
    if not os.path.exists(f"{runtime}/systemd/private"):
        return []
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    command += ["env", f"XDG_RUNTIME_DIR={runtime}", "systemctl"]
    command += ["--user", "list-units", "--all", "--plain", "--no-legend"]
    done = subprocess.run(
        [*command, "*shell-*"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return [f"{user}: {' '.join(line.split())}" for line in done.stdout.splitlines()]


def read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def process(pid):
    """None if it is of no job, or has gone. Zombies have no environment."""
    try:
        words = [word.decode(errors="replace") for word in read(pid, "cmdline").split(b"\0")]
        marks = [word for word in read(pid, "environ").split(b"\0") if word.startswith(b"CHAOS_JOB=")]
        cgroup = read(pid, "cgroup").decode().partition("::")[2].strip()
    except OSError:
        return None
    if not marks and os.path.basename(words[0]) not in PROGRAMS:
        return None
    mark = marks[0].decode().partition("=")[2] if marks else ""
    return {"pid": int(pid), "mark": mark, "cgroup": cgroup, "command": " ".join(words)[:100]}


def main(users):
    found = map(process, filter(str.isdigit, os.listdir("/proc")))
    said = {
        "units": [unit for user in users for unit in units(user)],
        "records": sorted(os.listdir(RECORDS)) if os.path.isdir(RECORDS) else [],
        "processes": [one for one in found if one],
    }
    print(json.dumps(said))


main(sys.argv[1:])
