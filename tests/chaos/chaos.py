"""usage: chaos.py [--seed N] [--seeds COUNT] [--seconds S] ... (see --help)

Runs jobs of every kind in an instance whose brokers are killed, stopped, reloaded and restarted,
and accounts for each job. One line of summary for each seed."""

import argparse
import concurrent.futures
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter

from account import Account
from attempt import Attempt, begin
from faults import Faults
from instance import SIZE, Instance
from jobs import EXIT_TIMEOUT_S, KINDS
from left import give_back, left, looks
from plan import FAULTS, make_plan
from scripts import SCRIPT, all_scripts, kills_meanwhile, of_job

# How long jobs may take when all brokers are back, and what is left after that, past
# exec.peer-timeout: more than flux-shell's exit-timeout.
PATIENCE_S = EXIT_TIMEOUT_S + 20
# How long one command waits for a job.
WAIT_S = 90

# Jobs that are accounted for at once: for each a node is asked several times.
ACCOUNTANTS = 4

# In every run: about 40 s, if nothing hangs. The peer-timeout decides how long rests stay.
SHORT = {
    "seconds": 20,
    "away": 3,
    "jobs": 10,
    "every": 4,
    "peer_timeout": 30,
    "kinds": list(KINDS),
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
    add("--seed", type=int, default=1, help="the first seed")
    add("--seeds", type=int, default=1, help="how many seeds, one after the other")
    add("--seconds", type=float, default=180, help="how long faults happen")
    add("--away", type=float, default=40, help="how long a killed broker is away, at most")
    add("--every", type=float, default=8, help="seconds from one fault to the next, on average")
    add("--peer-timeout", type=int, default=120, help="exec.peer-timeout, in seconds")
    add("--restart-after", type=float, default=0.1, help="RestartSec= of brokers; flux-core: 30")
    add("--jobs", type=int, default=0, help="how many; 0: one for each four seconds")
    add("--kinds", type=names(KINDS), default=list(KINDS), help="of jobs")
    add("--faults", type=names(FAULTS), default=list(FAULTS), help="of faults")
    add("--scripts", action="store_true", help="with prologs and epilogs; disks are not full then")
    add("--short", action="store_true", help=f"with {SHORT}")
    add("--plan", action="store_true", help="print what would happen, and when")
    add("--keep", help="directory for logs of seeds that failed")
    options = parser.parse_args()
    if options.short:
        parser.set_defaults(**SHORT)
        options = parser.parse_args()
    if options.scripts:
        # A prolog that cannot be recorded fails its job, and its node is drained.
        options.faults = [name for name in options.faults if name != "disk"]
    return options


# What rank 0 is asked when jobs hang.
LOOKS = ["module list", "queue status -v", "resource status", "resource list", "jobs -A", "dmesg"]


class Run:
    """One seed. What a run of another kind has instead of these is for it to say."""

    name = "chaos"
    Account, Attempt, Faults = Account, Attempt, Faults
    make_plan, looks = staticmethod(make_plan), staticmethod(looks)

    def __init__(self, seed, options):
        self.plan = self.make_plan(seed, options)
        self.top = tempfile.mkdtemp(prefix=f"{self.name}-", dir=os.environ.get("TMPDIR", "/tmp"))
        self.patience = options.peer_timeout + PATIENCE_S
        self.instance = self.make_instance(options)
        self.faults = self.Faults(self.instance, self.plan)
        self.accounts = []
        self.left, self.late, self.last, self.waited = {}, {}, {}, 0
        self.seen = {}
        self.began = time.time()

    def make_instance(self, options):
        script = SCRIPT if options.scripts else None
        return Instance(self.top, options.peer_timeout, options.restart_after, script)

    def attempts(self):
        """Each that there is a job of."""
        return [a for job in self.plan.jobs for a in job.attempts if a.id]

    def run(self):
        self.instance.start()
        self.started()
        self.began = time.time()
        stopping = threading.Event()
        threads = [begin(self.instance, job, stopping, self.Attempt) for job in self.plan.jobs]
        self.faults.run()
        self.instance.await_all()
        stopping.set()
        for job in self.plan.jobs:
            job.settled.wait()
        until = time.monotonic() + self.patience
        self.find_unanswered()
        self.await_jobs(until)
        self.end_clients(threads)
        with concurrent.futures.ThreadPoolExecutor(ACCOUNTANTS) as pool:
            self.accounts = list(pool.map(self.account, self.attempts()))
        self.end_hanging()
        give_back(self.instance, self.faults.full)
        began = time.monotonic()
        # An agent asks its parent, and a leader whose job has ended asks rank 0, each after this time
        # ([parent-asked], [known-or-ended]), and once more where the other was just coming back.
        patience = self.patience + 2 * self.plan.peer_timeout
        served = [account.attempt for account in self.accounts if not account.unserved]
        unserved = [account.attempt for account in self.accounts if account.unserved]
        self.left, self.late, self.last = left(
            self.instance, served, unserved, patience, self.looks
        )
        self.waited = time.monotonic() - began
        # Whether a run that was forgotten went on is known when its rank has ended it.
        for place, account in enumerate(self.accounts):
            if account.wrong:
                self.accounts[place] = self.account(account.attempt)

    def account(self, attempt):
        return self.Account(self.instance, attempt, self.faults)

    def started(self):
        """Before the first job and the first fault."""

    def find_unanswered(self):
        """Jobs whose submission was not answered, but done, of all users."""
        listed = self.instance.flux("jobs", "-Aano", "{id.f58} {name}", "-c0").splitlines()
        ids = {name: jobid for jobid, name in map(str.split, listed)}
        for job in self.plan.jobs:
            for attempt in job.attempts:
                if not attempt.id and attempt.name in ids:
                    attempt.id, attempt.answered_at = ids[attempt.name], time.time()
                    attempt.note(f"found: {attempt.id}")
                    if job.kind == "attach":
                        # Nobody types for it, so it is none of the test's.
                        attempt.cancel()
                        attempt.id = None

    def await_jobs(self, until):
        """Jobs that nobody acts on any more are ended, as a user would."""
        for attempt in self.attempts():
            if attempt.job.exception == "cancel" and not self.has_exception(attempt):
                # The KVS may have forgotten it, and a user would ask again (rfc/0008, 8.2).
                attempt.cancel()
            seconds = max(1, until - time.monotonic())
            # No command may take longer than the nodes' agents wait for one.
            for _ in range(math.ceil(seconds / WAIT_S)):
                give_back(self.instance, self.faults.full)
                wait = ["job", "wait-event", f"-t{min(seconds, WAIT_S):.0f}", attempt.id, "clean"]
                if self.instance.flux(*wait, check=False):
                    break

    def has_exception(self, attempt):
        log = self.instance.flux("job", "eventlog", attempt.id, check=False)
        return " exception " in log or " finish " in log

    def end_clients(self, threads):
        for attempt in self.attempts():
            if attempt.attached and attempt.attached.poll() is None:
                # A client whose job is over prints the rest, and ends.
                try:
                    attempt.attached.wait(timeout=10)
                except Exception:
                    attempt.note("attach does not end")
                    attempt.attached.kill()
        for thread in threads:
            thread.join(10)

    def end_hanging(self):
        """So that what is left of jobs that hang is not counted as well."""
        hanging = [a for a in self.accounts if any(kind == "hangs" for kind, _ in a.wrong)]
        if hanging:
            # What keeps them may be gone with them.
            self.seen = {look: self.instance.flux(*look.split(), check=False) for look in LOOKS}
        for account in hanging:
            account.attempt.cancel()
            wait = ["job", "wait-event", "-t60", account.attempt.id, "clean"]
            self.instance.flux(*wait, check=False)

    def wrong(self):
        """How much of each kind: jobs, or things that are left."""
        count = Counter(kind for a in self.accounts for kind in {kind for kind, _ in a.wrong})
        count.update({kind: len(what) for kind, what in self.left.items()})
        return count

    def summary(self):
        faults = Counter(fault.kind for fault in self.plan.faults)
        forgotten = [a for a in self.accounts if a.forgotten is not None]
        ran = [a.forgotten for a in forgotten if not a.waited]
        waited = [a.forgotten for a in forgotten if a.waited]
        again = [a.again for a in self.accounts if a.again is not None]
        jobs = sum(bool(a.wrong) for a in self.accounts)
        parts = [
            f"seed {self.plan.seed}: {len(self.accounts)} jobs",
            f"{self.kills()} kills, {len(self.faults.killed_0)} of rank 0",
            "faults: " + listing(faults),
            f"forgotten {len(ran)} that ran" + oldest(ran),
            f"{len(waited)} that waited" + oldest(waited),
            f"run again {len(again)}" + oldest(again),
            f"unrestored {sum(a.attempt.unrestored for a in self.accounts)}",
            f"no space {sum(a.no_space for a in self.accounts)}",
            f"unheard {sum(a.unheard for a in self.accounts)}",
            f"unserved {sum(a.unserved for a in self.accounts)}",
            f"untyped {sum(a.untyped for a in self.accounts)}",
            *self.more(),
            f"rests gone after {self.waited:.0f} s" + last(self.last, self.waited),
            f"{jobs} jobs wrong: " + listing(self.wrong()),
            f"{time.time() - self.began:.0f} s",
        ]
        return "; ".join(parts)

    def kills(self):
        return sum("killed [" in text and "killed []" not in text for _, text in self.faults.done)

    def more(self):
        if not self.instance.has_scripts:
            return []
        count, kills = len(all_scripts(self.instance)), kills_meanwhile(self.instance, self.faults)
        return [f"scripts {count}", f"kills while one ran {kills}"]

    def report(self, file):
        """Everything that somebody needs who looks for the cause."""

        def say(text=""):
            print(text, file=file)

        say(f"==== seed {self.plan.seed}, began at {self.began:.3f}")
        for now, text in sorted(self.faults.done):
            say(f"{now:.3f} {now - self.began:8.3f} {text}")
        for kind, what in self.left.items():
            say(f"---- {kind}:")
            for item in what:
                say(f"     {item}")
        if self.late:
            say(f"---- there when all jobs had ended, for up to {self.waited:.0f} s: {self.late}")
            say(f"---- and last: {self.last}")
        for look, shown in self.seen.items():
            say(f"---- flux {look}, while jobs hung:")
            for line in shown.splitlines():
                say(f"     {line}")
        for account in self.accounts:
            if account.wrong:
                self.report_job(account, say)

    def report_job(self, account, say):
        attempt = account.attempt
        say(f"---- {attempt.id} {attempt.name}: {attempt.job}")
        for kind, text in account.wrong:
            say(f"     {kind}: {text}")
        for now, text in attempt.story:
            say(f"     {now:.3f} {now - self.began:8.3f} {text}")
        for task in account.tasks:
            since = task.started - self.began
            say(f"     task {task.rank} at {since:8.3f}: {len(task.lines)} lines, end {task.end}")
        for script in of_job(self.instance, attempt.id):
            say(f"     {script.began - self.began:8.3f} {script}")
        paths = ["eventlog", "guest.exec.eventlog"]
        if any(kind == "input" for kind, _ in account.wrong):
            paths.append("guest.input")
        for path in paths:
            say(f"     {path}:")
            command = ["job", "eventlog", "-p", path, attempt.id]
            for line in self.instance.flux(*command, check=False).splitlines():
                say(f"       {line}")
        command = ["job", "eventlog", "-p", "guest.output", attempt.id]
        output = self.instance.flux(*command, check=False)
        for line in output.splitlines():
            if " data " not in line:
                say(f"       output: {line}")

    def keep(self, directory):
        """Logs of brokers, and what the tasks wrote."""
        target = os.path.join(directory, f"chaos-{self.plan.seed}")
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        for rank in range(SIZE):
            shutil.copy(self.instance.path(f"log-{rank}"), target)
            shutil.copytree(self.instance.records(rank), os.path.join(target, f"records-{rank}"))
            for name, command in (("dmesg", ["dmesg"]), ("stats", ["module", "stats", "job-exec"])):
                with open(os.path.join(target, f"{name}-{rank}"), "w", encoding="utf-8") as file:
                    file.write(self.instance.flux(*command, check=False, rank=rank))
        shutil.copytree(self.instance.path("jobs"), os.path.join(target, "jobs"))
        with open(os.path.join(target, "report"), "w", encoding="utf-8") as file:
            print(self.summary(), file=file)
            self.report(file)
        return target

    def close(self):
        self.instance.stop()
        self.instance.unmount()
        shutil.rmtree(self.top, ignore_errors=True)


def listing(counter):
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counter.items())) or "none"


def oldest(ages):
    return f" (oldest {max(ages):.2f} s before the kill)" if ages else ""


def last(rests, waited):
    """What took long."""
    return f" (the last {', '.join(map(str, rests.values()))})" if rests and waited > 240 else ""


def run_seed(seed, options, make=Run):
    """Whether nothing was wrong."""
    run = make(seed, options)
    is_over = False
    try:
        run.run()
        is_over = True
        print(run.summary(), flush=True)
        if not run.wrong():
            return True
        run.report(sys.stdout)
        # Again, for those who see the end only.
        print(run.summary(), flush=True)
    finally:
        try:
            if options.keep and (not is_over or run.wrong()):
                print(f"logs: {run.keep(options.keep)}")
        finally:
            run.close()
    return False


def print_plan(seed, options):
    plan = make_plan(seed, options)
    for item in sorted(plan.jobs + plan.faults, key=lambda item: item.at):
        print(item)


def main():
    options = arguments()
    good = True
    for seed in range(options.seed, options.seed + options.seeds):
        if options.plan:
            print_plan(seed, options)
        else:
            good = run_seed(seed, options) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
