"""What happens in a run on booted nodes, and when: everything that is random, from the seed alone."""

import random
from dataclasses import dataclass, field

from jobs import KINDS
from plan import SUBMIT_UNTIL, Plan

from cluster import OWNER, USERS

# How often each fault comes, and how long nodes are out of reach afterwards, at most, on a machine
# that is busy: a node boots, and flux.service has RestartSec=30s. The last is for rank 0, whose
# followers end when they notice.
FAULTS = {
    "power": (4, 30, 60),
    "kill": (3, 45, 50),
    "restart": (3, 20, 45),
    "shutdown": (1, 40, 40),
    "part": (3, 35, 40),
    "frames": (2, 35, 40),
    "clock": (2, 0, 0),
    "disk": (1, 0, 0),
    "manager": (4, 10, 10),
    "reload": (2, 0, 0),
}
# What is done to the user manager of the instance's owner.
MANAGER = ("stop", "restart", "reexec", "reload")
# A rank is not out of reach for longer than this part of exec.peer-timeout: after it a rank is
# drained and its part of a job given up, and rightly so.
OUT_OF_REACH_MAX = 0.7
PEER_TIMEOUT_S = 120


@dataclass
class Fault:
    at: float
    kind: str
    ranks: list
    # How long: without power, away, parted, full, stopped, in seconds.
    lasts: float
    # What exactly.
    how: str = ""

    def __str__(self):
        ranks = ",".join(map(str, self.ranks))
        return f"{self.at:7.2f} {self.kind} {self.how} rank {ranks} for {self.lasts:.2f} s"


@dataclass
class Reach:
    """When each rank cannot be reached, in order not to go past the bound."""

    longest: float
    times: dict = field(default_factory=dict)

    def admit(self, fault):
        span = [fault.at, fault.at + fault.lasts + FAULTS[fault.kind][2 if 0 in fault.ranks else 1]]
        # Where rank 0 is away, all are.
        ranks = fault.ranks if 0 not in fault.ranks else ["all"]
        for rank in ranks:
            others = self.times.get(rank, []) + self.times.get("all", [])
            if rank == "all":
                others = [span for spans in self.times.values() for span in spans]
            together = self.merged(span, others)
            if together[1] - together[0] > self.longest:
                return False
        for rank in ranks:
            self.times.setdefault(rank, []).append(span)
        return True

    @staticmethod
    def merged(span, others):
        begin, end = span
        for other in sorted(others):
            if other[0] <= end and begin <= other[1]:
                begin, end = min(begin, other[0]), max(end, other[1])
        return begin, end


def make_fault(draw, at, kind, size):
    one, everyone = [draw.randrange(size)], list(range(size))
    some = draw.choice([one, one, one, sorted(draw.sample(everyone, 2)), everyone])
    if kind in ("power", "kill"):
        return Fault(at, kind, some, draw.choice([0, draw.uniform(0, 30)]) if kind == "power" else 0)
    if kind == "restart":
        return Fault(at, kind, draw.choice([one, everyone]), 0)
    if kind == "shutdown":
        return Fault(at, kind, everyone, draw.uniform(0, 10))
    if kind == "part":
        return Fault(at, kind, one, draw.uniform(3, 45))
    if kind == "frames":
        return Fault(at, kind, one, draw.uniform(5, 30), f"{draw.choice([1, 5, 20])}%")
    if kind == "clock":
        return Fault(at, kind, one, draw.uniform(1, 20), draw.choice(["forward", "back"]))
    if kind == "disk":
        # On rank 0's disk Flux keeps its own KVS.
        return Fault(at, kind, [draw.randrange(1, size)], draw.uniform(1, 8))
    if kind == "manager":
        how = draw.choice(MANAGER)
        return Fault(at, kind, one, draw.uniform(1, 20) if how == "stop" else 0, how)
    return Fault(at, kind, one, 0)


def make_faults(draw, options):
    reach = Reach(OUT_OF_REACH_MAX * (options.peer_timeout or PEER_TIMEOUT_S))
    kinds = options.faults
    weights = [FAULTS[kind][0] for kind in kinds]
    faults, at = [], draw.uniform(5, 10)
    while kinds and at < options.seconds:
        fault = make_fault(draw, at, draw.choices(kinds, weights)[0], options.nodes)
        if reach.admit(fault):
            faults.append(fault)
        at += draw.expovariate(1 / options.every)
    return faults


def make_jobs(draw, options):
    count, order = options.jobs or int(options.seconds / 6), []
    while len(order) < count:
        order += draw.sample(options.kinds, len(options.kinds))
    times = sorted(draw.uniform(0, options.seconds * SUBMIT_UNTIL) for _ in range(count))
    jobs = []
    for number, (kind, at) in enumerate(zip(order, times)):
        job = KINDS[kind](number, at, random.Random(draw.random()), options.nodes)
        job.user = draw.choice([OWNER, *USERS])
        if job.kind == "noshell":
            # The IMP does not run a shell that it does not know, and flux-core's rule then drains the
            # nodes: "terminated before first barrier".
            job.user = OWNER
        job.shell = SHELL
        jobs.append(job)
    return jobs


# A node has one processor. On a busy machine brokers that are killed again and again are away for most of
# the 150 s that shells wait for each other (rfc/0008, 8.10): then the job ends for that, and shows no more.
SHELL = ("-ocpu-affinity=off", "-oexit-timeout=5m")


def make_plan(seed, options):
    # Apart, so that leaving out kinds of one does not change the other.
    for_jobs, for_faults = random.Random(f"jobs {seed}"), random.Random(f"nodes' faults {seed}")
    jobs = make_jobs(for_jobs, options)
    faults = SHORT_FAULTS if options.short else make_faults(for_faults, options)
    return Plan(seed, options.seconds, options.peer_timeout or PEER_TIMEOUT_S, jobs, faults)


# What only booted nodes can show. Followers come back 30 s after a restart of all.
SHORT_FAULTS = [
    Fault(5, "manager", [1], 0, "reexec"),
    Fault(7, "restart", [0, 1, 2], 0),
    Fault(12, "power", [2], 0),
]
