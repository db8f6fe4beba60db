"""Instances that are measured beside each other, by turns: what drifts on the machine meets all."""

import math
import os
import shutil
import statistics
import subprocess
import time

import flux
import flux.job


class Instance:
    """An instance with flux-core's job-exec, or with a build of the module: the directory with its
    libjob_exec_rs.so and libresume.so. It has a systemd of its own, where that can be made: sdexec's modules
    hear of the units of all who share theirs. `each`: each broker has one. Each rank has a disk of its own
    for its state directory, as on a node of its own. It is woken by what happens there; and ext4 looks at
    all inodes that were freed in the last seconds when it makes a file."""

    def __init__(self, scratch, build=None, conf=(), size=1, each=False):
        os.makedirs(scratch)
        environment = dict(os.environ)
        self.disks = []
        if build:
            environment.update(self.put(build, scratch))
            conf = [*conf, f'exec.state-directory="{scratch}/state"']
            for rank in range(size):
                self.add_disk(f"{scratch}/disk-{rank}", f"{scratch}/state/job-exec/rank-{rank}")
        if os.getuid() == 0:
            for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
                environment.pop(name, None)
        own_systemd = os.path.realpath("tests/user-systemd")
        command = ["flux", "start", f"--test-size={size}", "--conf=resource.noverify=true"]
        command += [f"--conf={setting}" for setting in conf]
        if each:
            command.append(f"--wrap={own_systemd}")
        else:
            # sdmon waits for a system bus, and so does sdexec for sdmon.
            both = 'DBUS_SYSTEM_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS exec "$@"'
            command = [own_systemd, "sh", "-c", both, "sh"] + command
        # It ends when this is closed, or this process has ended.
        end = os.path.join(scratch, "end")
        os.mkfifo(end)
        self.end = os.open(end, os.O_RDWR)
        command += ["sh", "-c", f"flux getattr local-uri; flux getattr broker.pid; exec cat {end}"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.handle = flux.Flux(self.process.stdout.readline().strip())
        self.pid = int(self.process.stdout.readline())
        if build:
            stats = self.handle.rpc("job-exec.stats-get").get()
            problem = f"{build}: job-exec is not this module, with its connector"
            assert stats.get("connector") == "resume", problem

    @staticmethod
    def put(build, scratch):
        for name in ("modules", "connectors", "modprobe.d"):
            os.mkdir(os.path.join(scratch, name))
        shutil.copyfile(f"{build}/libjob_exec_rs.so", f"{scratch}/modules/job-exec.so")
        shutil.copyfile(f"{build}/libresume.so", f"{scratch}/connectors/resume.so")
        with open(f"{scratch}/modprobe.d/ours.toml", "w", encoding="utf-8") as file:
            file.write('[job-exec]\nranks = "all"\n')
        return {
            "FLUX_MODULE_PATH_PREPEND": f"{scratch}/modules",
            "FLUX_CONNECTOR_PATH_PREPEND": f"{scratch}/connectors",
            "FLUX_MODPROBE_PATH_APPEND": scratch,
        }

    def add_disk(self, image, place):
        """An ext4 in a file, if this is root's."""
        os.makedirs(place, mode=0o700)
        if os.getuid() != 0:
            return
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        self.disks.append(place)

    def submit(self, ranks, elsewhere):
        """A job of one task on each of so many ranks; `elsewhere`: not on rank 0."""
        spec = flux.job.JobspecV1.from_command(["true"], num_tasks=ranks, num_nodes=ranks)
        if elsewhere:
            spec.setattr("system.constraints", {"not": [{"ranks": ["0"]}]})
        spec.environment = dict(os.environ)
        return flux.job.submit_async(self.handle, spec, waitable=True)

    def cpu(self):
        """CPU time of rank 0's broker, in seconds."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def batch(self, jobs, ranks=1, elsewhere=False):
        """Runs many jobs at once. Returns the seconds they took, and those of rank 0's broker."""
        cpu, begin = self.cpu(), time.monotonic()
        for future in [self.submit(ranks, elsewhere) for _ in range(jobs)]:
            future.get_id()
        for _ in range(jobs):
            self.await_job()
        return time.monotonic() - begin, self.cpu() - cpu

    def await_job(self):
        jobid, success, error = flux.job.wait(self.handle)
        assert success, f"{jobid}: {error}"
        return jobid

    def one(self, ranks=1, elsewhere=False):
        """Runs one job. Returns the seconds from alloc to start and to clean."""
        jobid = self.submit(ranks, elsewhere).get_id()
        events = flux.job.event_watch(self.handle, jobid)
        times = {event.name: event.timestamp for event in events}
        self.await_job()
        return times["start"] - times["alloc"], times["clean"] - times["alloc"]

    def stop(self):
        os.close(self.end)
        self.process.wait()
        for place in self.disks:
            subprocess.run(["umount", place], check=True)


def by_turns(times, sides, measure):
    """Each side's figures, a list each. Whoever is first in one turn is last in the next."""
    figures = {side: [] for side in sides}
    for turn in range(times):
        for side in reversed(sides) if turn % 2 else sides:
            figures[side].append(measure(side))
    return {side: list(zip(*results)) for side, results in figures.items()}


def ratio(pairs):
    """The ratio of the sums, with two standard errors."""
    count, base = len(pairs), sum(b for _, b in pairs)
    total = sum(a for a, _ in pairs) / base
    error = 2 * math.sqrt(count) * statistics.stdev(a - total * b for a, b in pairs) / base
    return total, error
