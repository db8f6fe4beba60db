"""What happens in a run, and when: everything that is random, from the seed alone."""

import random
from dataclasses import dataclass, field

from instance import PARENT, SIZE
from jobs import KINDS

# Seconds that a broker needs to come back, at most; for the bound below only.
COMES_BACK = 8
# A rank is not out of reach for longer than this part of exec.peer-timeout, however faults meet:
# after it a rank is drained and its part of a job given up, and rightly so.
OUT_OF_REACH_MAX = 0.6
# How long a clean stop of a follower takes. If its parent goes meanwhile it waits another 60 s
# (flux-core broker/state_machine.c, goodbye_timeout), and may be out of reach for too long.
STOPS = 4
# Jobs are submitted in the first part of a run, so that the last ones meet faults, too.
SUBMIT_UNTIL = 0.85

FAULTS = {"kill": 10, "pause": 3, "reload": 3, "restart": 2, "bus": 1, "disk": 1}


@dataclass
class Fault:
    at: float
    kind: str
    ranks: list
    # How long: away, stopped or full, in seconds.
    lasts: float

    def __str__(self):
        ranks = ",".join(map(str, self.ranks))
        return f"{self.at:7.2f} {self.kind} rank {ranks or '-'} for {self.lasts:.2f} s"


@dataclass
class Reach:
    """For each rank when it cannot be reached, in order not to go past the bound."""

    longest: float
    times: dict = field(default_factory=lambda: {rank: [] for rank in range(SIZE)})
    # Clean stops: when, and whose parent must stay.
    stops: list = field(default_factory=list)

    @staticmethod
    def merged(spans):
        result = []
        for begin, end in sorted(spans):
            # Between two spans a rank must be there for a while, or they are one.
            if result and begin <= result[-1][1] + COMES_BACK:
                result[-1][1] = max(result[-1][1], end)
            else:
                result.append([begin, end])
        return result

    def admit(self, fault):
        span = (fault.at, fault.at + fault.lasts + COMES_BACK)
        touched = [rank for rank in range(SIZE) if reaches(fault.ranks, rank)]
        stop = (fault.at - 1, fault.at + STOPS)
        parent = PARENT.get(fault.ranks[0]) if fault.kind == "restart" else None
        if parent is not None and any(overlap(stop, other) for other in self.times[parent]):
            return False
        if any(other in touched and overlap(span, when) for when, other in self.stops):
            return False
        for rank in touched:
            spans = self.merged(self.times[rank] + [span])
            if any(end - begin > self.longest for begin, end in spans):
                return False
        for rank in touched:
            self.times[rank].append(span)
        if parent is not None:
            self.stops.append((stop, parent))
        return True


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def reaches(ranks, rank):
    """Whether one of them is on the way from rank 0 to this one."""
    while rank is not None:
        if rank in ranks:
            return True
        rank = PARENT.get(rank)
    return False


def away(draw, longest):
    """Often not at all, sometimes long."""
    some = [draw.uniform(0, min(most, longest)) for most in (2, 10, longest)]
    return draw.choice([0, 0] + some)


def make_fault(draw, at, kind, longest):
    one = [draw.randrange(SIZE)]
    if kind == "kill":
        some = draw.sample(range(SIZE), draw.choice([1, 1, 1, 2, 3, 4]))
        return Fault(at, kind, sorted(some), away(draw, longest))
    if kind == "restart":
        return Fault(at, kind, one, away(draw, min(10, longest)))
    if kind == "bus":
        return Fault(at, kind, [], 0)
    return Fault(at, kind, one, 0 if kind == "reload" else draw.uniform(0.5, 8))


def make_faults(draw, options):
    reach = Reach(OUT_OF_REACH_MAX * options.peer_timeout)
    kinds = options.faults
    faults = []
    weights = [FAULTS[kind] for kind in kinds]
    at = draw.uniform(2, 5)
    while at < options.seconds:
        kind = draw.choices(kinds, weights)[0]
        fault = make_fault(draw, at, kind, options.away)
        if kind not in ("kill", "restart", "pause") or reach.admit(fault):
            faults.append(fault)
        # Others are killed while those come back.
        soon = kind in ("kill", "restart") and draw.random() < 0.3
        at += fault.lasts + draw.uniform(0, 3) if soon else draw.expovariate(1 / options.every)
    return faults


def make_jobs(draw, seconds, count, kinds):
    order = []
    while len(order) < count:
        order += draw.sample(kinds, len(kinds))
    order = order[:count]
    times = sorted(draw.uniform(0, seconds * SUBMIT_UNTIL) for _ in order)
    return [
        KINDS[kind](number, at, random.Random(draw.random()))
        for number, (kind, at) in enumerate(zip(order, times))
    ]


@dataclass
class Plan:
    seed: int
    seconds: float
    peer_timeout: int
    jobs: list
    faults: list


def make_plan(seed, options):
    # Apart, so that leaving out kinds of one does not change the other.
    for_jobs, for_faults = random.Random(f"jobs {seed}"), random.Random(f"faults {seed}")
    count = options.jobs or int(options.seconds / 4)
    jobs = make_jobs(for_jobs, options.seconds, count, options.kinds)
    faults = []
    if options.faults:
        faults = make_faults(for_faults, options)
    return Plan(seed, options.seconds, options.peer_timeout, jobs, faults)
