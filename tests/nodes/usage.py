"""usage: usage.py --image DIRECTORY

Guests' jobs with known figures on three booted nodes: what `flux job info JOBID usage` has is what the
kernel has counted, also when brokers are killed and restarted meanwhile, and a node that loses its power is
named as not known. Then memory gets short: at the job's own limit, at one above, on the node, and for a task
that limits itself. One line for each."""

import argparse
import json
import os
import shutil
import sys
import tempfile

from cluster import OWNER, Cluster
from doctor import PRELUDE
from instance import pause

RANKS = 3
MIB = 1 << 20
# How far figures may be from what a task has read just before its end: its shell is still to end.
MEMORY_SLACK, CPU_SLACK = 2 * MIB, 0.02
SHELL_END_S = 0.5
# What each task writes to the node's disk.
WRITTEN = 16 * MIB
# Bytes written are counted where a site has this.
COUNTS_IO = """
mkdir -p /etc/systemd/system/user@.service.d /etc/systemd/user.conf.d
printf '[Service]\\nDelegate=pids memory cpu io\\n' >/etc/systemd/system/user@.service.d/io.conf
printf '[Manager]\\nDefaultIOAccounting=yes\\n' >/etc/systemd/user.conf.d/io.conf
systemctl daemon-reload
systemctl stop flux
systemctl restart user@$(id -u flux)
systemctl start flux
"""
# What a task does: memory, CPU, and bytes written. Then it waits for the gate, and reads its slice.
TASK = """
import os, resource, sys, time
directory, mib, own_mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if own_mib: resource.setrlimit(resource.RLIMIT_AS, (own_mib << 20, own_mib << 20))
rank = os.environ["FLUX_TASK_RANK"]
held = []
for _ in range(mib // 4):
    held.append(bytearray(4 << 20))
    held[-1][::4096] = b"x" * 1024
with open(f"/var/tmp/{rank}", "wb") as file:
    for _ in range(16): file.write(bytes(1 << 20))
    os.fsync(file.fileno())
os.unlink(file.name)
while os.times().user < 2: sum(range(10000))
with open(f"{directory}/there-{rank}", "w"): pass
while not os.path.exists(f"{directory}/gate"): time.sleep(0.1)
group = open("/proc/self/cgroup").read().strip().split("::")[1]
slice = "/sys/fs/cgroup" + os.path.dirname(group)
stat = dict(line.split() for line in open(f"{slice}/cpu.stat"))
peak = open(f"{slice}/memory.peak").read().strip()
with open(f"{directory}/read-{rank}", "w") as file:
    print(peak, stat["user_usec"], stat["system_usec"], file=file)
"""


def arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--image", required=True, help="what tests/nodes/image has made")
    return parser.parse_args()


class Job:
    """One of alice's, on all nodes."""

    def __init__(self, cluster, name, mib=60, own_mib=0):
        self.cluster, self.directory = cluster, cluster.path("jobs", name)
        os.makedirs(self.directory)
        os.chmod(self.directory, 0o777)
        cluster.write("task.py", TASK)
        command = ["flux", "submit", f"-N{RANKS}", f"-n{RANKS}", "--cwd=/", "python3", cluster.path("task.py")]
        done = cluster.as_user("alice", [*command, self.directory, str(mib), str(own_mib)])
        self.id = done.stdout.strip()
        cluster.flux("job", "wait-event", "-t60", self.id, "start")

    def await_there(self):
        for _ in range(600):
            there = [os.path.exists(f"{self.directory}/there-{rank}") for rank in range(RANKS)]
            if all(there):
                return
            pause(0.2)
        raise TimeoutError(f"{self.id}: not all tasks are there")

    def open_gate(self):
        with open(f"{self.directory}/gate", "w", encoding="utf-8"):
            pass

    def usage(self):
        self.cluster.flux("job", "wait-event", "-t300", self.id, "clean", limit=320)
        done = self.cluster.as_user("alice", ["flux", "job", "info", self.id, "usage"])
        return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}

    def wrong(self, usage, lost=()):
        """What is not as the kernel has counted it."""
        known = [rank for rank in range(RANKS) if rank not in lost]
        if len(usage.get("user", ())) != len(known):
            return [f"{usage}"]
        wrong = [f"rank {rank} is known" for rank in lost if str(rank) not in usage.get("unknown", {})]
        for at, rank in enumerate(known):
            with open(f"{self.directory}/read-{rank}", encoding="utf-8") as file:
                peak, user, system = map(int, file.read().split())
            cpu, told = (user + system) / 1e6, usage["user"][at] + usage["system"][at]
            if not cpu <= told <= cpu * (1 + CPU_SLACK) + SHELL_END_S:
                wrong.append(f"rank {rank}: {told} s of CPU, counted was {cpu}")
            if not peak <= usage["memory"][at] <= peak + MEMORY_SLACK:
                wrong.append(f"rank {rank}: {usage['memory'][at]} bytes, counted was {peak}")
            if not WRITTEN <= (usage["written"][at] or 0) <= WRITTEN + MEMORY_SLACK:
                wrong.append(f"rank {rank}: {usage['written'][at]} bytes written")
        return wrong


def on_all(cluster, command):
    for rank in range(RANKS):
        cluster.nodes.run(rank, PRELUDE + command)


def plain(_cluster, job):
    job.open_gate()


def killed(cluster, job):
    for rank in range(RANKS):
        cluster.nodes.run(rank, "systemctl kill -s KILL --kill-whom=main flux")
    job.open_gate()
    cluster.await_all()


def stopped(cluster, job):
    """The shells end while nobody looks."""
    on_all(cluster, "systemctl stop flux")
    job.open_gate()
    pause(5)
    on_all(cluster, "systemctl start flux")
    cluster.await_all()


def reexecuted(cluster, job):
    on_all(cluster, "as_owner systemctl --user daemon-reexec")
    job.open_gate()


def cut(cluster, job):
    cluster.nodes.cut_power(2)
    cluster.nodes.boot(2)
    cluster.nodes.await_boot(2)
    cluster.await_all()
    job.open_gate()


def play(cluster, what, lost=()):
    job = Job(cluster, what.__name__)
    job.await_there()
    what(cluster, job)
    usage = job.usage()
    wrong = job.wrong(usage, lost) if not lost else unknown(usage, lost)
    return report(what.__name__, wrong, usage)


def unknown(usage, lost):
    """A job that has lost a node fails: its other tasks were killed."""
    told = usage.get("unknown", {})
    return [f"{usage}" for rank in lost if told.get(str(rank)) != "node was rebooted"]


def report(what, wrong, said):
    print(f"{what}: {'; '.join(wrong) or 'as counted'}: {json.dumps(said)}", flush=True)
    return not wrong


def short(cluster, name, configure, restore, expected, mib=200):
    """Memory that is short: the exception says where and why, and is not fatal."""
    configure()
    job = Job(cluster, name, mib)
    job.open_gate()
    usage = job.usage()
    events = cluster.flux("job", "eventlog", job.id)
    restore()
    said = [line for line in events.splitlines() if 'type="oom"' in line]
    wrong = []
    if len(said) < 1 or not all(expected in line for line in said):
        wrong.append(f"expected {expected!r} in {events}")
    if not all(kills and kills > 0 for kills in usage.get("oom-kills", [0])):
        wrong.append("no kill is counted")
    return report(name, wrong, [said, usage.get("oom-kills"), usage.get("memory")])


def own_limit(cluster):
    config = json.loads(cluster.flux("config", "get"))
    limited = {**config, "exec": {**config["exec"], "sdexec-properties": {"MemoryMax": "100M"}}}

    def load(content):
        cluster.write("config.json", json.dumps(content))
        cluster.flux("config", "load", cluster.path("config.json"))

    return short(cluster, "own-limit", lambda: load(limited), lambda: load(config), "at the job's limit of 100M")


def limit_above(cluster):
    def limit(size):
        on_all(cluster, f"as_owner systemctl --user set-property --runtime app.slice MemoryMax={size}")

    return short(cluster, "limit-above", lambda: limit("100M"), lambda: limit("infinity"), "a limit above the job")


def of_node(cluster):
    """More than it has."""

    def nothing():
        pass

    return short(cluster, "of-node", nothing, nothing, "for the node", mib=1500)


def of_task(cluster):
    """It is refused more, which is nobody's kill."""
    job = Job(cluster, "of-task", mib=200, own_mib=100)
    usage = job.usage()
    events = cluster.flux("job", "eventlog", job.id)
    wrong = [events] if 'type="oom"' in events or "finish status=256" not in events else []
    wrong += [f"{usage}"] if usage.get("oom-kills") != [0] * RANKS else []
    return report("of-task", wrong, [usage.get("oom-kills"), usage.get("memory")])


def main():
    options = arguments()
    os.umask(0)
    top = tempfile.mkdtemp(prefix="nodes-")
    cluster = Cluster(RANKS, options.image, top)
    right = True
    try:
        cluster.start()
        on_all(cluster, COUNTS_IO)
        cluster.await_all()
        for what in (plain, killed, stopped, reexecuted):
            right &= play(cluster, what)
        right &= own_limit(cluster)
        right &= limit_above(cluster)
        right &= of_node(cluster)
        right &= of_task(cluster)
        right &= play(cluster, cut, lost=(2,))
        on_all(cluster, "as_owner systemctl --user list-units --plain --no-legend '*shell_*.slice' >/tmp/left")
        left = [cluster.nodes.run(rank, "cat /tmp/left").stdout for rank in range(RANKS)]
        right &= report("slices that are left", [text for text in left if text], left)
    finally:
        cluster.stop()
        shutil.rmtree(top, ignore_errors=True)
    print("all right" if right else "something is wrong")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
