"""usage: back.py --image DIRECTORY

Goes back to flux-core's job-exec in each way that there is, on nodes where jobs of guests run, and
comes again. No process may be left that nobody owns, and no node with such processes takes jobs. At
last the module is loaded while the user manager is started again, and that is killed. One line for each."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

from cluster import GUESTS, OWNER, Cluster
from doctor import PRELUDE, SETTLED_S, submit
from instance import pause

AWAY = "/var/tmp/again"
# What a package manager has of it, too.
SAVE = f"""mkdir -p {AWAY} && cp $prefix/bin/job-exec-rs {AWAY}/ &&
cp $prefix/lib/flux/modules/job-exec-rs.so {AWAY}/libjob_exec_rs.so &&
cp $prefix/lib/flux/connectors/resume.so {AWAY}/libresume.so"""
OTHER_MODULE = "printf '[modules.alternatives]\\njob-exec = \"job-exec\"\\n' >$etc/system/conf.d/back.toml"
OURS_AGAIN = "rm $etc/system/conf.d/back.toml"
DROP_IN = "$prefix/share/flux/modprobe/modprobe.d/50-job-exec-rs.toml"
PROCESSES = f"pgrep -u {','.join(GUESTS)} -x sleep"
# Longer than a module waits for a systemd that nobody promises.
MANAGER_AWAY_S = 40


class Back:
    """The nodes, and what was wrong."""

    build = None

    def __init__(self, cluster):
        self.cluster, self.wrong = cluster, []

    def order(self, command, *ranks, check=True):
        """As root on these nodes, or all. Returns what they said."""
        done = self.cluster.each(lambda rank: self.cluster.nodes.run(rank, PRELUDE + command, 300), ranks or None)
        for answer in done:
            self.expect(not check or answer.returncode == 0, f"{command}: {answer.stderr}")
        return done

    def expect(self, is_right, why):
        if not is_right:
            self.wrong.append(why)

    def restart(self, *ranks):
        self.order("systemctl restart flux", *ranks)
        self.cluster.await_all()

    def module(self, rank=0):
        listed = self.cluster.flux("module", "list", rank=rank)
        return next(line.split()[0] for line in listed.splitlines() if line.startswith("job-exec"))

    def jobs(self):
        """A guest's on two nodes, and one of its own on each."""
        ranks = f"0-{self.cluster.count - 1}"
        return [submit(self.cluster, "0,1", 2), *(submit(self.cluster, ranks, 1) for _ in self.cluster.ranks)]

    def gone(self, jobs, module):
        """They have ended, with their processes, and this module runs others."""
        for job in jobs:
            self.cluster.flux("job", "wait-event", "-t120", job, "clean")
            log = self.cluster.flux("job", "eventlog", job)
            self.expect("exception" in log, f"{job} has no reason: {log}")
        self.expect(self.module() == module, f"{self.module()} is loaded, not {module}")
        ranks = f"-N{self.cluster.count}"
        job = self.cluster.as_user("alice", ["flux", "submit", ranks, "--cwd=/", "true"]).stdout.strip()
        self.cluster.flux("job", "wait-event", "-t100", job, "clean", check=False)
        log = self.cluster.flux("job", "eventlog", job)
        drained = self.cluster.flux("resource", "drain", "-no", "{ranks} {reason}")
        self.expect("finish status=0" in log, f"a new job: {log} drained: {drained}")
        # It has all nodes, so none is drained for a process that nobody owns.
        for rank, answer in enumerate(self.order(PROCESSES, check=False)):
            self.expect(answer.returncode == 1, f"left on n{rank}: {answer.stdout}{answer.stderr}")


def refused(back):
    jobs = back.jobs()
    for rank, answer in enumerate(back.order("job-exec-rs uninstall", check=False)):
        back.expect(answer.returncode != 0 and "flux cancel" in answer.stderr, f"n{rank}: {answer.stdout}")
    back.expect(any(jobs[0][1:] in a.stderr for a in back.order("job-exec-rs uninstall", 1, check=False)), "no id")
    states = back.cluster.flux("jobs", "-a", "-no", "{state}", *jobs).split()
    back.expect(states == ["RUN"] * len(jobs), f"{states}")
    back.cluster.flux("cancel", *jobs)


def another_module(back):
    jobs = back.jobs()
    back.order(OTHER_MODULE)
    back.restart()
    back.gone(jobs, "job-exec")
    back.order(OURS_AGAIN)
    back.restart()
    back.gone([], "job-exec-rs")


def removed(back):
    """Once nothing runs any more."""
    jobs = back.jobs()
    back.cluster.flux("cancel", *jobs)
    back.gone(jobs, "job-exec-rs")
    back.order(SAVE)
    back.order("job-exec-rs uninstall")
    back.restart()
    back.gone([], "job-exec")
    back.order(f"{AWAY}/job-exec-rs install")
    back.restart()
    back.gone([], "job-exec-rs")
    for rank in back.cluster.ranks:
        said = back.cluster.as_user(OWNER, ["flux", "job-exec-rs", "doctor"], rank)
        back.expect("  BAD  " not in said.stdout, said.stdout)


def after_a_crash(back):
    """The node comes back without the module, and is drained; with it its job goes on. (A node has its
    configuration from rank 0: only its files can differ.)"""
    job = submit(back.cluster, "1", 1)
    back.order(f"mv {DROP_IN} {AWAY}.toml", 1)
    back.order("kill -KILL $(systemctl show --value --property=MainPID flux)", 1)
    # What it said last is good for a second.
    pause(SETTLED_S)
    back.cluster.await_all()
    pause(SETTLED_S)
    drained = back.cluster.flux("resource", "drain", "-no", "{ranks} {reason}")
    back.expect(drained.startswith("1 ") and "shell-1" in drained, f"not drained: {drained}")
    back.order(f"mv {AWAY}.toml {DROP_IN}", 1)
    back.restart(1)
    drained = back.cluster.flux("resource", "drain", "-no", "{ranks} {reason}")
    back.expect(not drained, f"still drained: {drained}")
    state = back.cluster.flux("jobs", "-no", "{state}", job).strip()
    back.expect(state == "RUN", f"its job: {state}")
    back.cluster.flux("cancel", job)
    back.gone([job], "job-exec-rs")


def manager_away(back):
    """Somebody starts the user manager again, which takes long, and the module is loaded."""
    back.order("as_owner flux module remove job-exec-rs; systemctl stop $manager", 2)
    # The load ends when systemd has told its units.
    back.order("(as_owner flux module load job-exec-rs >/dev/null 2>&1 &)", 2)
    job = back.cluster.as_user("bob", ["flux", "submit", "--requires=rank:2", "--cwd=/", "true"]).stdout.strip()
    pause(MANAGER_AWAY_S)
    back.order("systemctl start $manager", 2)
    back.cluster.flux("job", "wait-event", "-t60", job, "clean")
    stats = back.cluster.flux("module", "stats", "job-exec", rank=2)
    back.expect('"launcher":"systemd"' in stats.replace(" ", ""), f"not by systemd: {stats}")


def manager_killed(back):
    """Somebody kills the user manager, and with it the kernel ends what it had started."""
    job, other = submit(back.cluster, "2", 1), submit(back.cluster, "1", 1)
    back.order("systemctl kill --signal=KILL $manager; systemctl reset-failed $manager; systemctl start $manager", 2)
    back.cluster.flux("job", "wait-event", "-t120", job, "clean")
    log = back.cluster.flux("job", "eventlog", job)
    back.expect("lost on n2 (rank 2): its user manager has ended" in log, f"it has another reason: {log}")
    state = back.cluster.flux("jobs", "-no", "{state}", other).strip()
    back.expect(state == "RUN", f"a job of another node: {state}")
    back.cluster.flux("cancel", other)
    back.gone([job, other], "job-exec-rs")


WAYS = {
    way.__name__: way
    for way in (refused, another_module, removed, after_a_crash, manager_away, manager_killed)
}


def main(ways, kind):
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--image", required=True, help="what tests/nodes/image has made")
    parser.add_argument("--build", help="of which packages are made, if it is not target/release")
    parser.add_argument("--ways", default=",".join(ways), help="which")
    options = parser.parse_args()
    kind.build = options.build
    os.umask(0)
    top = tempfile.mkdtemp(prefix="nodes-")
    cluster, right = Cluster(3, options.image, top), True
    try:
        cluster.start()
        pause(SETTLED_S)
        for name in options.ways.split(","):
            back = kind(cluster)
            try:
                ways[name](back)
            except (OSError, subprocess.SubprocessError) as error:
                back.wrong.append(f"{error} {getattr(error, 'stderr', '')}")
            print(f"{name}:", "; ".join(back.wrong) or "right", flush=True)
            right &= not back.wrong
    finally:
        cluster.stop()
        shutil.rmtree(top, ignore_errors=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main(WAYS, Back)
