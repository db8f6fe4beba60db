"""usage: campaign.py --image DIRECTORY [--seed N] [--seeds COUNT] [--seconds S] ... (see --help)

Runs jobs of every kind, of the instance's owner and of guests, on booted nodes that lose power, are
parted, and whose Flux is killed and restarted, and accounts for each job. One line of summary for each
seed."""

import argparse
import os
import shutil
import sys

import chaos
from chaos import Run
from cluster import USERS, Cluster
from jobs import KINDS
from ledger import AGENT, NodeAccount, NodeAttempt, Watch
from left import drained, give_back, ledgers, namespaces
from schedule import FAULTS, PEER_TIMEOUT_S, make_plan
from scripts import members
from trouble import Trouble

# How long jobs may take when all nodes are back: more than flux-shell's exit-timeout.
PATIENCE_S = 320

# In every run. The times of the faults are fixed.
SHORT = {
    "seconds": 15,
    "jobs": 8,
    "kinds": ["batch", "lines", "file", "input", "fails", "cancelled", "pmi", "nocommand"],
    "peer_timeout": 0,
}


def arguments():
    def names(known):
        def read(text):
            chosen = [name for name in text.split(",") if name]
            for name in chosen:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
            return chosen

        return read

    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--image", required=True, help="what tests/nodes/image has made")
    add("--nodes", type=int, default=3, help="how many")
    add("--seed", type=int, default=1, help="the first seed")
    add("--seeds", type=int, default=1, help="how many seeds, one after the other")
    add("--seconds", type=float, default=300, help="how long faults happen")
    add("--every", type=float, default=12, help="seconds from one fault to the next, on average")
    add("--peer-timeout", type=int, default=0, help="exec.peer-timeout in seconds; 0: the default")
    add("--jobs", type=int, default=0, help="how many; 0: one for each six seconds")
    add("--kinds", type=names(KINDS), default=list(KINDS), help="of jobs")
    add("--faults", type=names(FAULTS), default=list(FAULTS), help="of faults")
    add("--by-hand", action="store_true", help="with what a site had to set, to see what else is wrong")
    add("--short", action="store_true", help=f"with {SHORT}")
    add("--plan", action="store_true", help="print what would happen, and when")
    add("--keep", help="directory for logs of seeds that failed")
    options = parser.parse_args()
    if options.short:
        parser.set_defaults(**SHORT)
        options = parser.parse_args()
    # What chaos.Run asks for.
    options.scripts = False
    return options


def looks(cluster, unserved):
    """What must not be left when all jobs have ended, by kind. It goes by itself."""

    def of_nodes(kind, show=str):
        found = enumerate(cluster.each(lambda rank: cluster.probe(rank)[kind]))
        return [f"n{rank}: {show(one)}" for rank, some in found for one in some]

    def processes():
        found = of_nodes("processes", lambda one: " ".join(map(str, one.values())))
        return [one for one in found if AGENT not in one]

    def cores():
        # Not those that are free: a node whose clock went back is torpid for as long, because its broker
        # believes that it has just told of itself (flux-core `modules/overlay/overlay.c`).
        allocated = cluster.flux("resource", "list", "-s", "allocated", "-no", "{ncores}").split()
        return [] if allocated == ["0"] else [f"{allocated} are allocated"]

    return {
        "unit-left": lambda: of_nodes("units"),
        "record-left": lambda: of_nodes("records"),
        "namespace-left": lambda: namespaces(cluster, unserved),
        "process-left": processes,
        "cores-left": cores,
        "ledger-open": lambda: ledgers(cluster, cluster.count),
    }


class NodesRun(Run):
    name = "nodes"
    Attempt, Faults = NodeAttempt, Trouble
    make_plan, looks = staticmethod(make_plan), staticmethod(looks)

    def __init__(self, seed, options):
        super().__init__(seed, options)
        self.patience = self.plan.peer_timeout + PATIENCE_S
        self.watch = Watch(self.instance)
        for job in self.plan.jobs:
            job.program = self.instance.path("task.py")
        # What the service has warned of before anything was done to it.
        self.warnings = []
        # Nodes that were drained when the last fault was over.
        self.drained = []

    def make_instance(self, options):
        return Cluster(options.nodes, options.image, self.top, options.peer_timeout, options.by_hand)

    def account(self, attempt):
        return NodeAccount(self.instance, attempt, self.faults, self.watch)

    def started(self):
        self.warnings = [
            f"n{rank}: {text}"
            for rank in self.instance.ranks
            for _, text in self.instance.log(rank)
            if " job-exec-rs.warning" in text or " job-exec-rs.err" in text
        ]
        self.watch.start()

    def run(self):
        try:
            super().run()
        finally:
            self.watch.stop()

    def await_jobs(self, until):
        """Nodes that are drained are wrong enough: jobs need not wait for them as well."""
        give_back(self.instance, self.faults.full)
        self.drained = drained(self.instance)
        for line in self.drained:
            self.instance.flux("resource", "undrain", line.split()[0], check=False)
        for attempt in self.attempts():
            if attempt.job.kind == "batch":
                self.end_instance(attempt)
        super().await_jobs(until)

    def end_instance(self, attempt):
        """An instance in a job, of flux-core's own, waits for ever for a broker of it that was parted from it
        at its start, and for nodes that were drained outside: it takes over their drains."""
        if self.instance.flux("job", "wait-event", "-t60", attempt.id, "clean", check=False):
            return
        log = self.instance.flux("job", "eventlog", attempt.id, check=False)
        ranks = self.instance.flux("jobs", "-no", "{ranks}", attempt.id, check=False).strip()
        began = [float(line.split()[0]) for line in log.splitlines() if " alloc " in line]
        away = [end for rank in members(ranks or "0") for _, end in self.faults.away.get(rank, [])]
        if ' exception type="drain"' in log or began and max(away, default=0) > began[-1]:
            attempt.waits = True
            attempt.cancel()

    def wrong(self):
        count = super().wrong()
        self.drained = [
            line for line in self.drained if not any(a.has_drained(line) for a in self.accounts)
        ]
        count["drained"] += len(self.drained)
        if self.warnings:
            count["warning"] = len(self.warnings)
        return +count

    def kills(self):
        return sum(fault.kind in ("kill", "power") for fault in self.plan.faults)

    def more(self):
        lost = sum(bool(account.lost) for account in self.accounts)
        users = [sum(a.job.user == user for a in self.attempts()) for user in USERS]
        return [
            "users: " + ", ".join(f"{count} {user}" for user, count in zip(USERS, users)),
            f"lost with a node {lost}",
            f"refused by munge {sum(account.refused for account in self.accounts)}",
            f"instances ended {sum(attempt.waits for attempt in self.attempts())}",
        ]

    def report(self, file):
        super().report(file)
        for kind, what in (("warning", self.warnings), ("drained", self.drained)):
            for item in what:
                print(f"---- {kind}: {item}", file=file)

    def keep(self, directory):
        """What the tasks wrote, and the journals of the nodes."""
        target = os.path.join(directory, f"nodes-{self.plan.seed}")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.instance.path("jobs"), os.path.join(target, "jobs"))
        for rank in self.instance.ranks:
            shutil.copy(self.instance.path(f"log-{rank}"), target)
            shutil.copy(os.path.join(self.top, f"console-{rank}"), target)
        with open(os.path.join(target, "report"), "w", encoding="utf-8") as file:
            print(self.summary(), file=file)
            self.report(file)
        return target

    def close(self):
        self.instance.stop()
        shutil.rmtree(self.top, ignore_errors=True)


def main():
    options = arguments()
    # Guests write into what the nodes share with the test.
    os.umask(0)
    good = True
    for seed in range(options.seed, options.seed + options.seeds):
        if options.plan:
            plan = make_plan(seed, options)
            for item in sorted(plan.jobs + plan.faults, key=lambda item: item.at):
                print(item)
        else:
            good = chaos.run_seed(seed, options, NodesRun) and good
    return 0 if good else 1


sys.exit(main())
