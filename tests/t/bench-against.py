"""usage: bench-against.py THIS OTHER ROUNDS PAIRS JOBS ONES. See tests/bench-against."""

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import flux
import flux.job

ROUNDS, PAIRS, JOBS, ONES = (int(argument) for argument in sys.argv[3:7])


class Instance:
    """One broker with a build of the module."""

    def __init__(self, build, scratch):
        for name in ("modules", "connectors", "modprobe.d"):
            os.makedirs(os.path.join(scratch, name))
        copy = shutil.copyfile
        copy(f"{build}/libjob_exec_rs.so", f"{scratch}/modules/job-exec.so")
        copy(f"{build}/libresume.so", f"{scratch}/connectors/resume.so")
        with open(f"{scratch}/modprobe.d/ours.toml", "w", encoding="utf-8") as file:
            file.write('[job-exec]\nranks = "all"\n')
        environment = dict(
            os.environ,
            FLUX_MODULE_PATH_PREPEND=f"{scratch}/modules",
            FLUX_CONNECTOR_PATH_PREPEND=f"{scratch}/connectors",
            FLUX_MODPROBE_PATH_APPEND=scratch,
        )
        command = "flux getattr local-uri; flux getattr broker.pid; exec cat"
        self.process = subprocess.Popen(
            ["flux", "start", "--conf=resource.noverify=true", "sh", "-c", command],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.handle = flux.Flux(self.process.stdout.readline().strip())
        self.pid = int(self.process.stdout.readline())
        stats = self.handle.rpc("job-exec.stats-get").get()
        assert stats.get("connector") == "resume", f"{build}: job-exec is not this module, with its connector"
        self.spec = flux.job.JobspecV1.from_command(["true"])
        self.spec.environment = dict(os.environ)

    def submit(self):
        return flux.job.submit_async(self.handle, self.spec, waitable=True)

    def cpu(self):
        """CPU time of the broker, in seconds."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def batch(self):
        """Runs many jobs at once. Returns the seconds they took, and those of the broker's CPU."""
        cpu, begin = self.cpu(), time.monotonic()
        for future in [self.submit() for _ in range(JOBS)]:
            future.get_id()
        for _ in range(JOBS):
            self.await_job()
        return time.monotonic() - begin, self.cpu() - cpu

    def await_job(self):
        jobid, success, error = flux.job.wait(self.handle)
        assert success, f"{jobid}: {error}"
        return jobid

    def one(self):
        """Runs one job. Returns the seconds from alloc to start and to clean."""
        jobid = self.submit().get_id()
        events = flux.job.event_watch(self.handle, jobid)
        times = {event.name: event.timestamp for event in events}
        self.await_job()
        return times["start"] - times["alloc"], times["clean"] - times["alloc"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def by_turns(times, sides, measure):
    """Sums of each side's figures. Whoever is first in one turn is second in the next."""
    sums = {side: [] for side in sides}
    for turn in range(times):
        for side in reversed(sides) if turn % 2 else sides:
            sums[side].append(measure(side))
    return {side: [sum(figure) for figure in zip(*results)] for side, results in sums.items()}


def play(number, scratch):
    """A round: two new instances. Returns for each figure the sums of this build and of the other one."""
    builds = sys.argv[1:3]
    order = (1, 0) if number % 2 else (0, 1)
    instances = {which: Instance(builds[which], f"{scratch}/{which}") for which in order}
    sides = list(instances.values())
    by_turns(1, sides, Instance.batch)  # what is there only once in a broker's life is not measured
    batches = by_turns(PAIRS, sides, Instance.batch)
    by_turns(2, sides, Instance.one)  # what the last batch has left is done
    ones = by_turns(ONES, sides, Instance.one)
    for side in sides:
        side.stop()
    this, other = instances[0], instances[1]
    return list(zip(batches[this] + ones[this], batches[other] + ones[other]))


def show(name, rounds):
    """The ratio of the sums, with two standard errors, and the median of the rounds' ratios, with the order
    statistics between which it lies with 95 % probability."""
    count = len(rounds)
    base = sum(b for _, b in rounds)
    total = sum(a for a, _ in rounds) / base
    error = 2 * math.sqrt(count) * statistics.stdev(a - total * b for a, b in rounds) / base
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
