"""usage: bench-against.py THIS OTHER ROUNDS PAIRS JOBS ONES. See tests/bench-against."""

import math
import statistics
import sys
import tempfile

from instances import Instance, by_turns, ratio

ROUNDS, PAIRS, JOBS, ONES = (int(argument) for argument in sys.argv[3:7])


def play(number, scratch):
    """A round: two new instances. Returns for each figure the sums of this build and of the other one."""
    builds = sys.argv[1:3]
    order = (1, 0) if number % 2 else (0, 1)
    instances = {which: Instance(f"{scratch}/{which}", builds[which]) for which in order}
    sides = list(instances.values())

    def batch(side):
        return side.batch(JOBS)

    by_turns(1, sides, batch)  # what is there only once in a broker's life is not measured
    batches = by_turns(PAIRS, sides, batch)
    by_turns(2, sides, Instance.one)  # what the last batch has left is done
    ones = by_turns(ONES, sides, Instance.one)
    for side in sides:
        side.stop()
    this, other = ([sum(figure) for figure in batches[instances[which]] + ones[instances[which]]] for which in (0, 1))
    return list(zip(this, other))


def show(name, rounds):
    """The ratio of the sums, with two standard errors, and the median of the rounds' ratios, with the order
    statistics between which it lies with 95 % probability."""
    count = len(rounds)
    total, error = ratio(rounds)
    ratios = sorted(a / b for a, b in rounds)
    low = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    median = f"{statistics.median(ratios):.3f} [{ratios[low]:.3f} {ratios[-1 - low]:.3f}]"
    print(f"{name:24} {total:.3f} ± {error:.3f}   {median}", flush=True)


figures = []
for number in range(ROUNDS):
    with tempfile.TemporaryDirectory() as top:
        figures.append(play(number, top))
batches = f"{ROUNDS} rounds of {PAIRS} batches of {JOBS} jobs and {ONES} of one"
print(f"this / other, {batches}: of sums ± 2 SE, median [95 %]")
names = ("seconds a job", "broker's CPU a job", "one job, alloc to start", "one job, alloc to clean")
for name, rounds in zip(names, zip(*figures)):
    show(name, rounds)
