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

BUILDS = sys.argv[1:3]
PAIRS, JOBS, ONES = (int(argument) for argument in sys.argv[3:6])
FIGURES = ("seconds a job", "broker's CPU a job", "one job, alloc to start", "one job, alloc to clean")


class Instance:
    """A broker that has one build of the module, and then the other."""

    def __init__(self, scratch):
        self.scratch = scratch
        os.makedirs(f"{scratch}/modprobe.d")
        with open(f"{scratch}/modprobe.d/ours.toml", "w", encoding="utf-8") as file:
            file.write('[job-exec]\nranks = "all"\n')
        for which, build in enumerate(BUILDS):
            os.makedirs(f"{scratch}/{which}")
            shutil.copyfile(f"{build}/libjob_exec_rs.so", f"{scratch}/{which}/job-exec.so")
            shutil.copyfile(f"{build}/libresume.so", f"{scratch}/{which}/resume.so")
        self.point_to(0)
        self.environment = dict(
            os.environ,
            FLUX_MODULE_PATH_PREPEND=f"{scratch}/now",
            FLUX_CONNECTOR_PATH_PREPEND=f"{scratch}/now",
            FLUX_MODPROBE_PATH_APPEND=scratch,
        )
        command = "flux getattr local-uri; flux getattr broker.pid; exec cat"
        self.process = subprocess.Popen(
            ["flux", "start", "--conf=resource.noverify=true", "sh", "-c", command],
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        uri = self.process.stdout.readline().strip()
        self.environment["FLUX_URI"] = uri
        self.handle = flux.Flux(uri)
        self.pid = int(self.process.stdout.readline())
        self.spec = flux.job.JobspecV1.from_command(["true"])
        self.spec.environment = dict(os.environ)

    def point_to(self, which):
        """Shells find this build's connector from now on."""
        new = f"{self.scratch}/new"
        os.symlink(f"{self.scratch}/{which}", new)
        os.rename(new, f"{self.scratch}/now")

    def swap(self, which):
        """Loads a build in the place of the one that is loaded."""
        self.module("remove", "job-exec")
        self.point_to(which)
        self.module("load", f"{self.scratch}/{which}/job-exec.so")
        stats = self.handle.rpc("job-exec.stats-get").get()
        assert stats.get("connector") == "resume", f"{BUILDS[which]}: job-exec is not this module, with its connector"

    def module(self, *arguments):
        subprocess.run(["flux", "module", *arguments], env=self.environment, check=True)

    def submit(self):
        return flux.job.submit_async(self.handle, self.spec, waitable=True)

    def cpu(self):
        """CPU time of the broker, in seconds."""
        return time.clock_gettime(~self.pid << 3 | 2)  # CPUCLOCK_SCHED of a process

    def batch(self):
        """Runs many jobs at once. Returns the seconds that one took, and those of the broker's CPU."""
        cpu, begin = self.cpu(), time.monotonic()
        for future in [self.submit() for _ in range(JOBS)]:
            future.get_id()
        for _ in range(JOBS):
            self.await_job()
        return (time.monotonic() - begin) / JOBS, (self.cpu() - cpu) / JOBS

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

    def ones(self, count):
        """Runs single jobs. Returns the means of what `one` returns."""
        return tuple(map(statistics.mean, zip(*[self.one() for _ in range(count)])))

    def measure(self, which):
        """The figures of a build."""
        self.swap(which)
        self.ones(3)  # what is there only once in a module's life is not measured
        batch = self.batch()
        self.ones(2)  # what the batch has left is done
        return batch + self.ones(ONES)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def show(name, pairs):
    """The ratio of the sums, with two standard errors, and the median of the pairs' ratios, with the order
    statistics between which it lies with 95 % probability."""
    count = len(pairs)
    base = sum(b for _, b in pairs)
    total = sum(a for a, _ in pairs) / base
    error = 2 * math.sqrt(count) * statistics.stdev(a - total * b for a, b in pairs) / base
    ratios = sorted(a / b for a, b in pairs)
    low = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    median = f"{statistics.median(ratios):.3f} [{ratios[low]:.3f} {ratios[-1 - low]:.3f}]"
    print(f"{name:24} {total:.3f} ± {error:.3f}   {median}   of {base / count * 1000:.1f} ms", flush=True)


def main():
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        instance = Instance(scratch)
        for which in (0, 1):
            instance.measure(which)  # what is there only once in a broker's life is not measured
        for number in range(PAIRS):
            # Whoever is first in one pair is second in the next.
            order = (1, 0) if number % 2 else (0, 1)
            measured = {which: instance.measure(which) for which in order}
            figures.append(list(zip(measured[0], measured[1])))
        instance.stop()
    print(f"this / other, {PAIRS} pairs of {JOBS} jobs at once and {ONES} one by one: of sums ± 2 SE, median [95 %]")
    for name, pairs in zip(FIGURES, zip(*figures)):
        show(name, pairs)


main()
