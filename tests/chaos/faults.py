"""Carries out the faults of a plan."""

import os
import signal
import threading
import time

from instance import pause, systemctl
from left import give_back


class Faults:
    def __init__(self, instance, plan):
        self.instance, self.plan = instance, plan
        # (time, what) of each that was done.
        self.done = []
        # When rank 0 was killed.
        self.killed_0 = []
        # When rank 0 was stopped: the beginning and the end of each time.
        self.stopped_0 = []
        # Of each rank, from when to when it was kept away.
        self.away = {}
        # When rank 0 may have had no module: the beginning and the end of each reload.
        self.reloaded_0 = []
        # Of each rank, when its disk was full.
        self.full = {}

    def note(self, text, now=None):
        self.done.append((now or time.time(), text))

    def run(self):
        """Each at its time; they overlap. Returns when the last one is over."""
        begin = time.monotonic()
        threads = []
        for fault in self.plan.faults:
            pause(max(0, begin + fault.at - time.monotonic()))
            thread = threading.Thread(target=self.carry_out, args=(fault,), name=str(fault))
            thread.start()
            threads.append(thread)
        pause(max(0, begin + self.plan.seconds - time.monotonic()))
        for thread in threads:
            thread.join()

    def carry_out(self, fault):
        getattr(self, fault.kind)(fault)

    def kill(self, fault):
        self.instance.hold(fault.ranks)
        began = time.time()
        try:
            now, reached = self.instance.signal(fault.ranks, signal.SIGKILL)
            killed = [rank for rank, _ in reached]
            if 0 in killed:
                self.killed_0.append(now)
            self.note(f"killed {killed} of {fault.ranks}, away for {fault.lasts:.2f} s", now)
            pause(fault.lasts)
        finally:
            self.instance.let_go(fault.ranks)
            for rank in fault.ranks:
                self.away.setdefault(rank, []).append((began, time.time()))
        self.note(f"{fault.ranks} may come back")

    def restart(self, fault):
        """An administrator's."""
        rank, began = fault.ranks[0], time.time()
        self.instance.hold([rank])
        try:
            self.note(f"restart of {rank}, away for {fault.lasts:.2f} s")
            systemctl("restart", "--no-block", self.instance.unit(rank))
            pause(fault.lasts)
        finally:
            self.instance.let_go([rank])
            self.away.setdefault(rank, []).append((began, time.time()))

    def pause(self, fault):
        now, reached = self.instance.signal(fault.ranks, signal.SIGSTOP)
        self.note(f"stopped {reached} for {fault.lasts:.2f} s", now)
        if 0 in (rank for rank, _ in reached):
            self.stopped_0.append((now, now + fault.lasts))
        pause(fault.lasts)
        for rank, pid in reached:
            # Another process can have its pid only if it was killed meanwhile.
            if self.instance.pid(rank) == pid:
                os.kill(pid, signal.SIGCONT)

    def reload(self, fault):
        rank, began = fault.ranks[0], time.time()
        said = self.instance.flux("module", "reload", "job-exec", check=False, rank=rank)
        self.note(f"reloaded on {rank} {said}")
        if rank == 0:
            self.reloaded_0.append((began, time.time()))

    def bus(self, fault):
        """All connections of all modules end. It is not killed: systemd 252 may then wait for a
        bus that only it can start, for 90 s, in which no broker comes back."""
        if self.instance.is_private:
            systemctl("restart", "dbus.service")
            self.note("restarted the bus")

    def disk(self, fault):
        """The disk of records and output of one rank."""
        rank = fault.ranks[0]
        if not self.instance.is_private:
            return
        began = time.time()
        # Two such faults of one rank can overlap.
        filler = f"{self.instance.records(rank)}/filler-{fault.at:.2f}"
        self.note(f"disk of {rank} full for {fault.lasts:.2f} s")
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * (1 << 16))
            except OSError:
                pass
            pause(fault.lasts)
        os.unlink(filler)
        self.full.setdefault(rank, []).append((began, time.time()))
        give_back(self.instance, self.full)
