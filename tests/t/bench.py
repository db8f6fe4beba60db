"""usage: bench.py BUILD [OPTION...]. See tests/bench."""

import argparse
import contextlib
import statistics
import sys
import tempfile

from chart import chart
from instances import Instance, by_turns, ratio


def numbers(text):
    return [int(number) for number in text.split(",") if number]


parser = argparse.ArgumentParser(prog="tests/bench")
parser.add_argument("build")
parser.add_argument("--rounds", type=int, default=2, help="how often instances are started")
parser.add_argument("--ranks", type=numbers, default=[4, 16], help="jobs on their own: on so many ranks")
parser.add_argument("--flight", type=numbers, default=[200, 500], help="jobs of one rank at once")
parser.add_argument("--elsewhere", type=numbers, default=[1, 4, 16], help="jobs without rank 0")
parser.add_argument("--ones", type=int, default=12, help="jobs on their own, in a round")
parser.add_argument("--svg", help="where to draw latency and rate")
OPTIONS = parser.parse_args()

SCRIPTS = [f'job-manager.{stage}.command=["true"]' for stage in ("prolog", "epilog")]
SCRIPTS += [f"job-manager.{stage}.per-rank=true" for stage in ("prolog", "epilog")]
# How each instance is started. All are compared with the first of their set.
VARIANTS = {
    "rexec": {},
    "sdexec": {"conf": ['exec.service="sdexec"', "systemd.enable=true"]},
    "units": {"build": OPTIONS.build},
    "units, own systemd": {"build": OPTIONS.build, "each": True},
    "fork": {"build": OPTIONS.build, "conf": ['exec.method="fork"']},
    "perilog.so": {"conf": SCRIPTS + ['job-manager.plugins=[{"load":"perilog.so"}]']},
    "scripts in units": {"build": OPTIONS.build, "conf": SCRIPTS + ["exec.perilog.enable=true"]},
}
ALONE = ["rexec", "sdexec", "units", "fork"]
TOGETHER = ["rexec", "sdexec", "units", "units, own systemd"]
WITH_SCRIPTS = ["perilog.so", "scripts in units"]

# By figure, number and variant: what was measured.
measured = {}


def note(figure, number, name, values):
    measured.setdefault((figure, number), {}).setdefault(name, []).extend(values)


class Running:
    """Instances of these variants, all at once."""

    def __init__(self, names, size):
        self.sides = {}
        with contextlib.ExitStack() as ends:
            top = ends.enter_context(tempfile.TemporaryDirectory())
            for place, name in enumerate(names):
                self.sides[name] = Instance(f"{top}/{place}", size=size, **VARIANTS[name])
                ends.callback(self.sides[name].stop)
            # Had one not started, the others would have been stopped here.
            self.ends = ends.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.ends.close()

    def measure(self, times, what):
        """What each of them takes, by turns."""
        figures = by_turns(times, list(self.sides.values()), what)
        return {name: figures[side] for name, side in self.sides.items()}

    def warm_up(self, *job):
        """What is there only once in a broker's life is not measured."""
        self.measure(2, lambda side: side.batch(5, *job))

    def ones(self, number, prefix=""):
        """Jobs on their own on so many ranks."""
        self.warm_up(number)
        for name, (start, clean) in self.measure(OPTIONS.ones, lambda side: side.one(number)).items():
            note(f"{prefix}alloc to start, ms", number, name, [1000 * value for value in start])
            note(f"{prefix}alloc to clean, ms", number, name, [1000 * value for value in clean])

    def rates(self, number, prefix=""):
        """So many jobs at once."""
        for name, (took, cpu) in self.measure(2, lambda side: side.batch(number)).items():
            note(f"{prefix}jobs a second", number, name, [number / value for value in took])
            note(f"{prefix}broker's CPU a job, ms", number, name, [1000 * value / number for value in cpu])

    def elsewhere(self, number):
        """Jobs on so many ranks, and never on rank 0."""
        self.warm_up(number, True)
        for name, (_, cpu) in self.measure(3, lambda side: side.batch(20, number, True)).items():
            note("rank 0's CPU for a job elsewhere, ms", number, name, [1000 * value / 20 for value in cpu])


def play():
    """A round."""
    if OPTIONS.flight:
        with Running(ALONE, 1) as running:
            running.ones(1)
            for number in OPTIONS.flight:
                running.rates(number)
        with Running(WITH_SCRIPTS, 1) as running:
            running.ones(1, "with scripts: ")
            running.rates(100, "with scripts: ")
    for number in OPTIONS.ranks:
        with Running(TOGETHER, number) as running:
            running.ones(number)
    for number in OPTIONS.elsewhere:
        with Running(TOGETHER[::2], number + 1) as running:
            running.elsewhere(number)


def show():
    """A line for each figure and number: the mean of the first variant, and of the others the ratio to it."""
    for (figure, number), sides in measured.items():
        (base, values), *others = sides.items()
        line = f"{figure + ', ' + str(number):46} {base} {statistics.mean(values):.1f}"
        for name, other in others:
            total, error = ratio(list(zip(other, values)))
            line += f"   {name} {total:.2f} ± {error:.2f}"
        print(line, flush=True)


def draw(path):
    def lines(figure):
        points = {}
        for (name, number), sides in measured.items():
            for variant, values in sides.items() if name == figure else ():
                points.setdefault(variant, []).append((number, statistics.mean(values)))
        return points

    axes = [("alloc to start, ms", "ranks"), ("alloc to clean, ms", "ranks"), ("jobs a second", "jobs in flight")]
    with open(path, "w", encoding="utf-8") as file:
        file.write(chart([(figure, below, lines(figure)) for figure, below in axes]))


for turn in range(OPTIONS.rounds):
    print(f"round {turn + 1} of {OPTIONS.rounds}", file=sys.stderr, flush=True)
    play()
show()
if OPTIONS.svg:
    draw(OPTIONS.svg)
