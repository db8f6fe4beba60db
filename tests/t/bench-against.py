"""usage: bench-against.py THIS OTHER PAIRS JOBS ONES. See tests/bench-against."""

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

PAIRS, JOBS, ONES = (int(argument) for argument in sys.argv[3:6])


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


def by_turns(times, this, other, measure):
    """Pairs of results, a list for each figure. Whoever is first in one pair is second in the next."""
    pairs = []
    for turn in range(times):
        order = (this, other) if turn % 2 else (other, this)
        result = {side: measure(side) for side in order}
        pairs.append(zip(result[this], result[other]))
    return [list(figure) for figure in zip(*pairs)]


def show(name, pairs):
    """The ratio of the sums, with two standard errors, and the median of the ratios, with the order
    statistics between which it lies with 95 % probability."""
    count = len(pairs)
    base = sum(b for _, b in pairs)
    total = sum(a for a, _ in pairs) / base
    error = 2 * math.sqrt(count) * statistics.stdev(a - total * b for a, b in pairs) / base
    line = f"{name:24} {total:.3f} ± {error:.3f}"
    if all(b for _, b in pairs):
        ratios = sorted(a / b for a, b in pairs)
        low = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
        line += f"   {statistics.median(ratios):.3f} [{ratios[low]:.3f} {ratios[-1 - low]:.3f}]"
    print(line, flush=True)


with tempfile.TemporaryDirectory() as top:
    this, other = (Instance(build, f"{top}/{build is sys.argv[1]}") for build in sys.argv[1:3])
    for side in (this, other):
        side.batch()  # what is there only once in a broker's life is not measured
    seconds, cpu = by_turns(PAIRS, this, other, Instance.batch)
    print(f"this / other, {PAIRS} pairs of {JOBS} jobs, {ONES} of one: of sums ± 2 SE, median [95 %]")
    show("seconds a job", seconds)
    show("broker's CPU a job", cpu)
    by_turns(2, this, other, Instance.one)  # what the last batch has left is done
    to_start, to_clean = by_turns(ONES, this, other, Instance.one)
    show("one job, alloc to start", to_start)
    show("one job, alloc to clean", to_clean)
    for side in (this, other):
        side.stop()
