"""Carries out the faults of a plan on booted nodes."""

import threading
import time

from cluster import CLOCK_JUMP_S, OWNER
from instance import pause
from left import give_back

MANAGER_UNIT = "user@$(id -u flux).service"
MANAGER_COMMANDS = {
    "restart": f"systemctl restart {MANAGER_UNIT}",
    "reexec": "{owner} systemctl --user daemon-reexec",
    "reload": "{owner} systemctl --user daemon-reload",
}
FILLER = "/var/lib/flux/filler"
FILL = f"""for size in 1G 256M 64M 16M 4M 1M 256K 64K 16K 4K; do
    n=0; while fallocate -l $size {FILLER}-{{number}}-$size-$n 2>/dev/null; do n=$((n + 1)); done
    rm -f {FILLER}-{{number}}-$size-$n
done"""

# `flux shutdown` waits for rank 0 alone, and systemctl has no command that waits for a unit to end.
START_WHEN_ENDED = """for try in {1..60}; do
    case $(systemctl is-active flux) in active | deactivating) sleep 1 ;; *) break ;; esac
done
systemctl start flux"""
# A node boots so long on a machine that is busy.
BOOTS_S = 30
INSIST_S = 300
# It waits so long, and longer, for guests' shells, to which it cannot send a signal.
MANAGER_S = 200


def signal_to(unit, name):
    """A command. A unit that is about to be started again has the process 0, to which a signal would go
    to whoever sends it."""
    show = f"systemctl show --value --property=MainPID {unit}"
    return f"pid=$({show}); [ $pid = 0 ] || kill -{name} $pid"


class Trouble:
    """Has what the account of tests/chaos asks of its faults."""

    def __init__(self, cluster, plan):
        self.cluster, self.nodes, self.plan = cluster, cluster.nodes, plan
        # (time, what) of each that was done.
        self.done = []
        # When rank 0's broker was killed, or its node lost power.
        self.killed_0 = []
        # Of each rank, from when to when it was kept away.
        self.away = {}
        # When rank 0 may have had no module: the beginning and the end of each reload.
        self.reloaded_0 = []
        # Of each rank, when its disk was full.
        self.full = {}
        # Of each rank, when everything that ran there was lost, and when there was a new beginning.
        self.lost = {}
        # Of each rank, when it reached no other.
        self.parted = {}
        # As tests/chaos has it.
        self.stopped_0 = []
        # How often somebody keeps a node without power.
        self.held = {rank: 0 for rank in cluster.ranks}
        self.lock = threading.Lock()

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
        began = time.time()
        self.note(f"begins: {fault}")
        try:
            getattr(self, fault.kind)(fault)
        except OSError as error:
            # Another fault has the node.
            self.note(f"{fault.kind} of {fault.ranks}: {error}")
        if fault.kind in ("power", "kill", "restart", "shutdown", "part", "frames"):
            self.await_run(fault.ranks)
            for rank in fault.ranks:
                self.away.setdefault(rank, []).append((began, time.time()))
        self.note(f"over: {fault}")

    def await_run(self, ranks):
        for rank in ranks:
            try:
                self.cluster.await_run(rank)
            except OSError as error:
                self.note(f"rank {rank} is not back: {error}")

    def sh(self, rank, command, limit=120):
        """On a node that is up, as root."""
        done = self.nodes.run(rank, command, limit)
        if done.returncode != 0:
            self.note(f"n{rank}: {command[:60]}: {done.returncode} {done.stderr.strip()[-200:]}")
        return done

    def insist(self, rank, command):
        """What undoes a fault: when the node is up."""
        until = time.monotonic() + INSIST_S
        while True:
            try:
                return self.sh(rank, command)
            except OSError:
                # Who has taken its power gives it back.
                if time.monotonic() > until:
                    raise
                pause(0.5)

    def power(self, fault):
        with self.lock:
            for rank in fault.ranks:
                self.held[rank] += 1
            now = time.time()
            self.nodes.cut_power(*fault.ranks)
        self.note(f"power cut of {fault.ranks}", now)
        if 0 in fault.ranks:
            self.killed_0.append(now)
        for rank in fault.ranks:
            # It has nothing to lose before it is up.
            self.lost.setdefault(rank, []).append((now, now + fault.lasts + BOOTS_S))
        pause(fault.lasts)
        with self.lock:
            for rank in fault.ranks:
                self.held[rank] -= 1
            back = [rank for rank in fault.ranks if not self.held[rank]]
            self.nodes.boot(*back)
        self.nodes.await_boot(*back)

    def kill(self, fault):
        """systemd starts them again."""
        command = signal_to("flux", "KILL")
        now = time.time()
        if 0 in fault.ranks:
            self.killed_0.append(now)
        self.cluster.each(lambda rank: self.try_on(rank, command), fault.ranks)

    def try_on(self, rank, command):
        try:
            return self.sh(rank, command)
        except OSError as error:
            self.note(f"n{rank}: {error}")

    def restart(self, fault):
        self.cluster.each(lambda rank: self.try_on(rank, "systemctl restart flux"), fault.ranks)

    def shutdown(self, fault):
        try:
            self.cluster.flux("shutdown", "--quiet", check=False)
        finally:
            pause(fault.lasts)
            self.cluster.each(lambda rank: self.insist(rank, START_WHEN_ENDED))

    def part(self, fault):
        """The node reaches no other."""
        rank, began = fault.ranks[0], time.time()
        others = [other for other in self.cluster.ranks if other != rank]
        self.nodes.network.part(rank, others)
        pause(fault.lasts)
        self.nodes.network.part(rank, others, -1)
        self.parted.setdefault(rank, []).append((began, time.time()))

    def frames(self, fault):
        rank = fault.ranks[0]
        self.nodes.network.loss[rank] = float(fault.how.rstrip("%")) / 100
        pause(fault.lasts)
        self.nodes.network.loss[rank] = 0.0

    def clock(self, fault):
        rank = fault.ranks[0]
        off = CLOCK_JUMP_S if fault.how == "forward" else -CLOCK_JUMP_S
        # By the difference alone: the account compares times of the node from before and after, and
        # another of these may last. A node that has booted meanwhile has its host's time, and no file
        # in /run.
        mark = f"/run/clock-is-off-{fault.at:.2f}"
        self.sh(rank, f"date -s '{off} seconds' && touch {mark}")
        pause(fault.lasts)
        self.insist(rank, f"! rm {mark} || date -s '{-off} seconds'")
        # A broker whose clock went back believes that it has told its parent of itself in the last hour,
        # and is torpid, which gets it no jobs, until it sends anything (flux-core `overlay.c`).
        self.cluster.as_user(OWNER, ["flux", "ping", "--count=1", "0"], rank)

    def disk(self, fault):
        rank, began = fault.ranks[0], time.time()
        number = f"{fault.at:.2f}"
        try:
            self.sh(rank, FILL.format(number=number))
            pause(fault.lasts)
        finally:
            # Its power may go while it is being filled: the disk stays full.
            self.insist(rank, f"rm -f {FILLER}-{number}-*")
            self.full.setdefault(rank, []).append((began, time.time()))
            give_back(self.cluster, self.full)

    def manager(self, fault):
        rank = fault.ranks[0]
        if fault.how == "stop":
            self.sh(rank, signal_to(MANAGER_UNIT, "STOP"))
            pause(fault.lasts)
            self.insist(rank, signal_to(MANAGER_UNIT, "CONT"))
            return
        began = time.time()
        owner = f"setpriv --reuid={OWNER} --regid={OWNER} --init-groups "
        owner += f"env XDG_RUNTIME_DIR=/run/user/$(id -u {OWNER})"
        try:
            self.sh(rank, MANAGER_COMMANDS[fault.how].format(owner=owner), MANAGER_S)
        finally:
            if fault.how == "restart":
                self.lost.setdefault(rank, []).append((began, time.time()))

    def reload(self, fault):
        rank, began = fault.ranks[0], time.time()
        said = self.cluster.flux("module", "reload", "job-exec-rs", check=False, rank=rank)
        self.note(f"reloaded on {rank} {said}")
        if rank == 0:
            self.reloaded_0.append((began, time.time()))
