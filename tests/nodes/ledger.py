"""The account of one job on booted nodes: that of tests/chaos, with what a power cut takes with it, and
where a job's processes are."""

import math
import re
import signal
import threading

from account import Account
from attempt import Attempt
from instance import pause
from scripts import members

# What may be wrong with a job that a node was lost from.
OF_TOUCHED = {
    "input",
    "task-killed",
    "task-error",
    "not-started",
    "attach-ended",
    # Its leader shell can be waiting for the lost one while no broker is there to tell.
    "exit-timeout",
    "leader-lines-missing",
    "follower-lines-missing",
}
# Of a shell that ends so the node is drained, as with flux-core.
BEFORE_BARRIER = "terminated before first barrier"
# How a job is told that its part on a node was lost, or ended with its user manager as it began.
REASONS = (
    "lost",
    "nothing is known of it on its node",
    "rebooted",
    "booted",
    "no trace of it",
    BEFORE_BARRIER,
)
# The status of a job whose tasks were ended by SIGTERM, and the IMP or not between.
OF_SIGTERM = (143 << 8, 15)
# How shells say that they miss another, and how the end of one is told that went with its user manager.
OF_SHELLS = ("PMI-1 wire protocol error", ": Terminated")
# What munge says to the IMP and to flux-shell, if their node's clock says that it was signed later.
OF_MUNGE = "Rewound credential"
# systemd hears of the end of a unit, and Flux of that.
TOLD_S = 5
# Between two looks at what runs on the nodes.
LOOKS_S = 8
# Of the test itself.
AGENT = "/system.slice/node-agent.service"


class NodeAttempt(Attempt):
    """By a user on a node. Clients that need rank 0's broker run there."""

    # Its own instance waits for ever.
    waits = False

    def client(self, *command, **more):
        return self.instance.as_user(self.job.user, command, **more)

    def submit(self):
        try:
            return super().submit()
        except OSError as error:
            self.note(f"not submitted: {error}")
            return False

    def cancel(self):
        while True:
            try:
                return super().cancel()
            except OSError as error:
                self.note(f"cancel not answered: {error}")

    def attach_once(self, rank, lines):
        """All of it is done by a script on the node; its client goes with the power. It types slowly, so that
        faults meet it."""
        self.instance.await_run(rank)
        script = (
            f"for ((n = 0; n < {lines}; n++)); do echo typed $n; sleep 0.05; done | "
            f"FLUX_URI=resume:///run/flux/local flux job attach --unbuffered {self.id} "
            f">{self.directory}-attached"
        )
        self.attached, self.attached_by = Client(), rank
        self.note(f"attached by rank {rank}")
        try:
            done = self.instance.as_user(self.job.user, ["bash", "-c", script], rank, limit=1200)
        except OSError as error:
            self.attached.returncode = self.attached.lost = 1
            self.note(f"attach exited with its node: {error}")
            return True
        said = done.stderr.strip()
        self.note(f"attach exited with {done.returncode}: {said}")
        is_unrestored = "event_watch_get: Operation not supported" in said
        self.unrestored += is_unrestored
        self.attached.returncode = done.returncode
        return not is_unrestored and "flux_open" not in said and "No such job" not in said


class Client:
    """What the account asks of an attached client, in place of its process."""

    def __init__(self):
        self.returncode = self.lost = None

    def poll(self):
        return self.returncode

    def wait(self, timeout):
        pause(0 if self.returncode is not None else timeout)
        if self.returncode is None:
            raise TimeoutError

    def kill(self):
        self.returncode = -9


class Watch:
    """Looks now and then at which processes run where."""

    def __init__(self, cluster):
        self.cluster, self.stopping = cluster, threading.Event()
        # For each attempt, (node, cgroup): command and time of what was seen there.
        self.seen = {}
        self.thread = threading.Thread(target=self.look, name="watch", daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def look(self):
        while not self.stopping.wait(LOOKS_S):
            self.cluster.each(self.look_at)

    def look_at(self, rank):
        try:
            found = self.cluster.probe(rank)
        except OSError:
            return
        for process in found["processes"]:
            name = process["mark"].removeprefix(f"{self.cluster.tag}-")
            where = (rank, process["cgroup"])
            self.seen.setdefault(name, {}).setdefault(where, process["command"])


class NodeAccount(Account):
    # Nothing keeps the nodes' clocks together, and under load they have been 1.5 s apart.
    clocks_apart_s = 3

    def __init__(self, cluster, attempt, trouble, watch):
        self.cluster, self.watch = cluster, watch
        # The ranks of its allocation that were lost while it ran, and again if it has ended for it.
        self.touched, self.lost = [], []
        # Its signature was refused.
        self.refused = False
        # Its leader shell had not ended 25 s after an exception, and got SIGKILL: with it goes what
        # the tasks of all shells have told it and the KVS does not have yet, as with flux-core. Nodes that
        # share processors are that slow.
        self.leader_killed = False
        self.every_task = []
        super().__init__(cluster, attempt, trouble)
        self.account_places()

    def say(self, kind, text):
        is_touched = self.touched or self.refused or self.attempt.waits
        if self.leader_killed and kind in ("follower-lines-missing", "leader-lines-missing"):
            return
        if not (is_touched and kind in OF_TOUCHED):
            super().say(kind, text)

    def read(self, path):
        events = super().read(path)
        for event in events or []:
            event["timestamp"] = self.cluster.true_time(event["timestamp"])
        return events

    def account_events(self):
        self.every_task = list(self.tasks)
        for task in self.tasks:
            task.started = self.cluster.true_time(task.started)
        self.account_lost()
        self.account_refused()
        super().account_events()

    def is_excused(self):
        """Its end has this reason. An instance goes on without a node, and its own job fails."""
        is_instance = self.job.kind == "batch" and (self.touched or self.attempt.waits)
        return bool(self.lost or self.refused or is_instance) or super().is_excused()

    def has_drained(self, line):
        """Whether a node is drained for this job, as it has to be."""
        is_due = self.refused or self.lost and BEFORE_BARRIER in line
        return bool(is_due) and self.attempt.id in line

    def account_lost(self):
        """Who hears first of a lost node tells the job: the service, or a shell that misses another. An
        instance in a job loses the broker of a node that is parted from its others, too."""
        kinds = [self.faults.lost]
        if self.job.kind == "batch":
            kinds.append(self.faults.parted)
        ran = min((event["timestamp"] for event in self.named("alloc")), default=math.inf)
        ends = [e["timestamp"] for e in self.named("finish") + self.named("exception")]
        self.touched = [
            rank
            for rank in self.allocated()
            if any(
                ran <= end and begin <= max(ends, default=begin) + TOLD_S
                for kind in kinds
                for begin, end in kind.get(rank, [])
            )
        ]
        fatal = [e["context"] for e in self.named("exception") if e["context"]["severity"] == 0]
        if not fatal and any(e["context"]["status"] in OF_SIGTERM for e in self.named("finish")):
            # The IMP exits as the shell does, which gives the status of tasks that the end of the
            # user manager has terminated.
            self.lost = self.touched
        if not fatal or fatal[0]["type"] != "exec" or not self.touched:
            return
        note = fatal[0].get("note", "")
        if any(word in note for word in REASONS):
            self.lost = self.touched if self.rank_in(note) in (None, *self.touched) else []
        elif any(word in note for word in OF_SHELLS):
            self.lost = self.touched

    def account_refused(self):
        logs = [self.read(path) or [] for path in ("guest.exec.eventlog", "guest.output")]
        self.refused = any(OF_MUNGE in str(event) for log in logs for event in log)

        exits = [e["context"] for e in logs[0] if e["name"] == "shell-exit"]
        self.leader_killed = any(exit["wait_status"] == signal.SIGKILL for exit in exits)

    def account_attached(self):
        if not self.attempt.attached.lost:
            super().account_attached()

    def allocated(self):
        said = self.cluster.flux("jobs", "-no", "{ranks}", self.attempt.id, check=False).strip()
        return members(said) if said else []

    def without_forgotten(self, tasks, submitted=math.inf):
        """Nor those that began just before their node lost power and rank 0's broker died: if the KVS has
        forgotten the job's `start`, its shells are started again (rfc/0008, 8.10)."""
        tasks = super().without_forgotten(tasks, submitted)
        started = min((event["timestamp"] for event in self.named("start")), default=0)

        def is_young(task):
            unit = re.search(r"shell-(\d+)-", task.cgroup)
            lost = self.faults.lost.get(int(unit[1]), []) if unit else []
            return any(task.started < begin < started for begin, _ in lost)

        young = [task for task in tasks if is_young(task)]
        for task in young:
            self.account_forgotten(task.started, f"rank {task.rank}", submitted)
        return [task for task in tasks if task not in young]

    def account_places(self):
        """No process of a job is ever outside the unit of the outermost job."""
        unit = re.compile(
            r"/user\.slice/user-\d+\.slice/user@\d+\.service/app\.slice/"
            r"(app-(imp_)?shell_\w+\.slice/)?"
            rf"(imp-)?shell-\d+-f{self.attempt.id[1:]}-\w+\.service(/|$)"
        )
        places = {
            (f"n{rank}", cgroup): command
            for (rank, cgroup), command in self.watch.seen.get(self.attempt.name, {}).items()
        }
        places.update({(f"task {task.rank}", task.cgroup): "a task" for task in self.every_task})
        for (where, cgroup), command in places.items():
            if not unit.match(cgroup) and cgroup != AGENT:
                self.say("outside-unit", f"{where}: {command!r} in {cgroup}")

