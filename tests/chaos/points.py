"""usage: points.py [--kills N] [--points A,B] [--seed N] [--keep DIRECTORY]

Kills brokers when the shells of a job on all ranks, or its prologs or epilogs, are at a known point:
they wait there at gates. The job must then go on as if nothing had been. One line of summary for each
point."""

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys

from account import read_tasks
from instance import SIZE, pause, run, started
from jobs import PYTHON, SHELL, exited
from left import left
from scripts import BEGINS, ENDS, members, of_job

HERE = os.path.dirname(os.path.abspath(__file__))
STATUS = 3
# Of each task, when it is past its gate.
LINES = 100
PATIENCE_S = 120
# Longest time that brokers are away, and longest time between the opening of gates and a kill.
AWAY_S = 2
LATER_S = 0.05

# Where shells wait: the topic of flux-shell's plugins, and whether all of them do. If not, the
# others are past it, in what comes next. Shells meet in a barrier after shell.init and after
# shell.start (flux-core shell/shell.c).
POINTS = {
    "before": ("shell.init", True),
    "first-barrier": ("shell.init", False),
    "between": ("shell.post-init", True),
    "second-barrier": ("shell.start", False),
    "exit": ("shell.exit", True),
    "pmi": (None, False),
    "prolog": (None, True),
    "epilog": (None, True),
}
# The instance has prologs and epilogs there.
OF_SCRIPTS = ("prolog", "epilog")
RC = """
local function wait()
    local rank = shell.info.rank
    local at = io.open("{directory}/at", "w")
    at:write(rank .. "\\n")
    at:close()
    local gate = io.open("{directory}/gate-" .. rank, "r")
    gate:read("*l")
    gate:close()
end
plugin.register {{ name = "points", handlers = {{ {{ topic = "{topic}", fn = wait }} }} }}
"""
EXCHANGE = """
echo $FLUX_TASK_RANK >{directory}/at
read -r line <{directory}/gate-$FLUX_TASK_RANK
flux pmi exchange --count=50 >/dev/null
"""
# Waits in the directory that "now" leads to, if the job is of this point. `read` without a command
# substitution, so that SIGTERM is heard.
WAITS = """
if [ -e "$directory/now/$kind" ]; then
    echo "$rank" >"$directory/now/at"
    read -r line <"$directory/now/gate-$rank"
fi
"""


class Gates:
    """Where shells, tasks or scripts of a job wait. The pipes are open on this side all the time."""

    def __init__(self, directory):
        self.at = self.make(f"{directory}/at")
        self.gates = {rank: self.make(f"{directory}/gate-{rank}") for rank in range(SIZE)}

    @staticmethod
    def make(path):
        os.mkfifo(path)
        return os.open(path, os.O_RDWR)

    def await_all(self):
        """Until all ranks are there. A broker that is killed must not keep one from it."""
        there = set()
        while len(there) < SIZE:
            ready, _, _ = select.select([self.at], [], [], PATIENCE_S)
            assert ready, f"only ranks {sorted(there)} have come to the point"
            there |= {int(rank) for rank in os.read(self.at, 4096).split()}

    def open(self, ranks):
        for rank in ranks:
            os.write(self.gates[rank], b"\n")

    def close(self):
        for pipe in (self.at, *self.gates.values()):
            os.close(pipe)


class Round:
    def __init__(self, instance, point, number, draw):
        self.instance, self.point, self.number = instance, point, number
        self.topic, all_wait = POINTS[point]
        self.killed = sorted(draw.sample(range(SIZE), draw.randint(1, SIZE)))
        self.away = draw.uniform(0, AWAY_S)
        self.waiting = list(range(SIZE)) if all_wait else [draw.randrange(SIZE)]
        self.later = draw.uniform(0, LATER_S)
        # Whether those that wait go on while the brokers are away.
        self.early = draw.random() < 0.5
        self.directory = instance.path("jobs", f"{point}-{number}")
        # As tests/chaos/left.py wants it.
        self.id = None

    def __str__(self):
        when = "while they are away" if self.early else "when they are back"
        return (
            f"{self.point} {self.number}: ranks {self.waiting} wait, brokers {self.killed} are killed "
            f"after {self.later * 1000:.0f} ms for {self.away:.2f} s, and gates are opened {when}"
        )

    def command(self):
        command = ["submit", f"-N{SIZE}", f"-n{SIZE}", "--cwd=/", *SHELL]
        command += [f"--env=CHAOS_JOB={self.instance.tag}-{self.point}-{self.number}"]
        task = [PYTHON, "-I", f"{HERE}/task.py", self.directory, str(STATUS)]
        if self.point == "pmi":
            return command + task + ["run", "sh", "-c", EXCHANGE.format(directory=self.directory)]
        if self.point in OF_SCRIPTS:
            return command + task + ["lines", str(LINES), "1", "0.001"]
        rc = f"{self.directory}/rc.lua"
        with open(rc, "w", encoding="utf-8") as file:
            file.write(RC.format(directory=self.directory, topic=self.topic))
        return command + [f"-ouserrc={rc}"] + task + ["lines", str(LINES), "1", "0.001"]

    def play(self):
        os.makedirs(self.directory)
        gates = Gates(self.directory)
        if self.point in OF_SCRIPTS:
            self.have_scripts_wait()
        self.id = self.instance.flux(*self.command()).strip()
        gates.await_all()
        # A job manager that is killed must not forget the job: that is another test's.
        self.instance.flux("kvs", "put", "--sync", f"points={self.number}")
        gates.open(rank for rank in range(SIZE) if rank not in self.waiting)
        pause(self.later)
        self.kill(lambda: gates.open(self.waiting))
        self.instance.flux("job", "wait-event", f"-t{PATIENCE_S}", self.id, "clean")
        gates.close()

    def have_scripts_wait(self):
        """Scripts know the job's id, which nobody knows yet. Jobs come one after the other."""
        with open(f"{self.directory}/{self.point}", "w", encoding="utf-8"):
            pass
        now = self.instance.path("scripts", "now")
        os.symlink(self.directory, f"{now}-next")
        os.rename(f"{now}-next", now)

    def kill(self, go_on):
        self.instance.hold(self.killed)
        self.instance.signal(self.killed, signal.SIGKILL)
        if self.early:
            go_on()
        pause(self.away)
        self.instance.let_go(self.killed)
        self.instance.await_all()
        if not self.early:
            go_on()

    def check(self):
        """What is wrong."""
        wrong = []
        said = self.instance.flux("job", "eventlog", self.id)
        if " exception " in said:
            wrong.append("it has an exception")
        if f"finish status={exited(STATUS)}" not in said:
            wrong.append("it has another status")
        tasks = read_tasks(self.directory)
        if sorted(task.rank for task in tasks) != list(range(SIZE)):
            wrong.append(f"tasks {sorted(task.rank for task in tasks)} were started")
        output = self.output()
        for task in tasks:
            lines = [line for line in output if line.startswith(f"{task.rank} ")]
            if task.end != str(STATUS) or lines != task.lines:
                wrong.append(
                    f"task {task.rank}: end {task.end}, {len(task.lines)} lines, of which flux has "
                    f"{len(lines)}"
                )
        if self.point in OF_SCRIPTS:
            wrong += self.check_scripts(min(task.started for task in tasks))
        return wrong

    def check_scripts(self, first):
        """Each prolog once and before the first task, each epilog once and before the release."""
        runs = of_job(self.instance, self.id)
        wrong = [f"{run} has not ended by itself" for run in runs if run.how != "ends"]
        for kind in OF_SCRIPTS:
            ranks = sorted(run.rank for run in runs if run.kind == kind)
            if ranks != list(range(SIZE)):
                wrong.append(f"{kind} on ranks {ranks}")
        ended = {(run.kind, run.rank): run.ended for run in runs if run.ended}
        if any(at > first for (kind, _), at in ended.items() if kind == "prolog"):
            wrong.append(f"a task began at {first}, before a prolog had ended: {runs}")
        for at, ranks in self.releases():
            late = [rank for rank in ranks if ended.get(("epilog", rank), at) > at]
            if late:
                wrong.append(f"ranks {late} were released at {at}, before their epilogs: {runs}")
        return wrong

    def releases(self):
        said = self.instance.flux("job", "eventlog", "--format=json", self.id)
        for event in map(json.loads, said.splitlines()):
            if event["name"] == "release":
                ranks = event["context"]["ranks"]
                yield event["timestamp"], range(SIZE) if ranks == "all" else members(ranks)

    def output(self):
        environment = dict(os.environ, FLUX_URI=self.instance.uri(0))
        return run("flux", "job", "attach", self.id, check=False, env=environment).stdout.splitlines()


def report(instance, round, wrong, keep):
    """For those who look for the cause."""
    print(f"==== {round}")
    for text in wrong:
        print(f"     {text}")
    for path in ("eventlog", "guest.exec.eventlog", "guest.output"):
        said = instance.flux("job", "eventlog", "-p", path, round.id or "0", check=False)
        print(f"---- {path}:\n{said}")
    if keep:
        for rank in range(SIZE):
            run("cp", instance.path(f"log-{rank}"), f"{keep}/log-{round.point}-{round.number}-{rank}")


def play(instance, point, options):
    """How many rounds went wrong."""
    bad, killed, rounds = 0, 0, []
    for number in range(options.kills):
        round = Round(instance, point, number, random.Random(f"{options.seed} {point} {number}"))
        try:
            round.play()
            wrong = round.check()
        except (AssertionError, subprocess.CalledProcessError) as error:
            wrong = [str(error)]
        if wrong:
            report(instance, round, wrong, options.keep)
            instance.flux("cancel", round.id or "0", check=False)
        bad += bool(wrong)
        killed += len(round.killed)
        rounds.append(round)
    rests, _, _ = left(instance, rounds, [], PATIENCE_S)
    for kind, what in rests.items():
        print(f"---- {kind}: {what}")
    print(f"{point}: {len(rounds)} kills of {killed} brokers in all; {bad} wrong", flush=True)
    return bad + len(rests)


def arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="at each point")
    parser.add_argument("--points", default=",".join(POINTS), help="which")
    parser.add_argument("--seed", type=int, default=1, help="decides who is killed, and when")
    parser.add_argument("--keep", help="directory for the brokers' logs of what went wrong")
    options = parser.parse_args()
    for point in options.points.split(","):
        if point not in POINTS:
            parser.error(f"{point} is none of {', '.join(POINTS)}")
    return options


def main():
    options, bad = arguments(), 0
    for script in (None, f"{BEGINS}{WAITS}{ENDS}"):
        points = [p for p in options.points.split(",") if (p in OF_SCRIPTS) == (script is not None)]
        if points:
            with started(peer_timeout=60, script=script) as instance:
                bad += sum(play(instance, point, options) for point in points)
    return bad > 0


sys.exit(main())
