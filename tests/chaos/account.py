"""The account of one job: what Flux says of it against what its tasks have done.

What is wrong has a kind, by which it is counted, and a text."""

import json
import math
import os
import re
from dataclasses import dataclass

from jobs import STEPS
from scripts import account_scripts, members

# A job that rank 0's KVS has forgotten: for how long it may have run, while rank 0 ran too, before
# that was killed. The service makes a checkpoint each second while jobs change (rfc/0008, 8.3), and
# that takes a while on a busy machine.
FORGOTTEN_MAX_S = 5
# And one that waited: it makes one 4 s after any change (waiting-kept), but none while the disk is full.
WAITING_MAX_S = 15
# A broker that may come back is in its place again so long after that, on a busy machine.
REJOIN_S = 20
# systemd may execute a shell so long after a killed broker has asked for it.
EXECUTED_LATE_S = 1
# A shell that initializes passes the signal that ends it on to tasks that it does not have yet, and
# starts them. It is killed after exec.kill-timeout.
FENCED_S = 8


@dataclass
class Task:
    """One process, as it tells itself."""

    rank: int
    started: float
    lines: list
    # None: it was killed.
    end: str = None
    cgroup: str = ""


def read_tasks(directory):
    tasks = []
    for name in sorted(os.listdir(directory) if os.path.isdir(directory) else []):
        if not re.fullmatch(r"\d+\.\d+\.\d+", name):
            continue
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            said = file.read().splitlines()
        if not said:
            continue
        task = Task(int(name.split(".")[0]), float(said[0].split()[1]), [])
        for line in said[1:]:
            word, _, rest = line.partition(" ")
            if word == "line":
                task.lines.append(rest)
            elif word == "cgroup":
                task.cgroup = rest
            else:
                task.end = rest
        tasks.append(task)
    return tasks


class Account:
    # How far the clocks of two ranks can be apart, in seconds.
    clocks_apart_s = 0

    def __init__(self, instance, attempt, faults):
        self.instance, self.attempt, self.job = instance, attempt, attempt.job
        self.faults = faults
        self.wrong = []
        # Age at the kill, if it was forgotten, or run again, as the KVS went back.
        self.forgotten = None
        self.again = None
        # The job manager has freed it on an exception that came while no service was loaded.
        self.unserved = False
        # The job manager had taken its shell's exception, and died before it told anybody.
        self.unheard = False
        # The KVS has forgotten its release, and nothing else of its end.
        # The client that typed heard from its rank again when the job was over (rfc/0008, 8.10).
        self.untyped = False
        # A forgotten one had not begun to run.
        self.waited = False
        if attempt.broken:
            self.say("test-broken", attempt.broken)
        # Its rank had no space for its record, and it says so.
        self.no_space = False
        self.events = self.read("eventlog")
        if self.events and self.events[0]["timestamp"] > attempt.answered_at:
            # Forgotten, and another job has its id.
            self.events = None
        self.tasks = read_tasks(attempt.directory)
        for number in range(STEPS):
            self.tasks += read_tasks(f"{attempt.directory}/{number}")
        if self.events is None:
            self.account_unknown()
        else:
            self.account_events()
            self.account_tasks()
            if instance.has_scripts and self.named("clean"):
                allocated = instance.flux("jobs", "-no", "{ranks}", attempt.id).strip()
                account_scripts(self, members(allocated) if allocated else [])

    def read(self, path):
        command = ["job", "eventlog", "-fjson", "-p", path, self.attempt.id]
        try:
            said = self.instance.flux(*command)
        except OSError:
            return None
        except Exception:  # the command failed: there is no such eventlog
            return None
        return [json.loads(line) for line in said.splitlines()]

    def say(self, kind, text):
        self.wrong.append((kind, text))

    def named(self, name):
        return [event for event in self.events if event["name"] == name]

    def age_at_kill(self, then):
        """For how long rank 0 ran between that and its next kill; None: it was not killed."""
        kill = min((kill for kill in self.faults.killed_0 if kill >= then), default=None)
        if kill is None:
            return None
        stopped = (min(end, kill) - max(begin, then) for begin, end in self.faults.stopped_0)
        return kill - then - sum(span for span in stopped if span > 0)

    def killed_meanwhile(self, begin, end):
        return any(begin <= kill <= end for kill in self.faults.killed_0)

    def killed_while_it_ran(self):
        ended = [event["timestamp"] for event in self.named("finish")]
        return self.killed_meanwhile(self.attempt.asked_at, max(ended, default=0))

    def account_unknown(self):
        """The service makes checkpoints while jobs run, and while any wait."""
        asked, answered = self.attempt.asked_at, self.attempt.answered_at
        self.waited = not self.tasks
        # A nested instance that was forgotten goes on with its steps until it is ended.
        begins = [answered] + [task.started for task in self.tasks]
        begins += [task.started - EXECUTED_LATE_S for task in self.tasks]
        ages = [age for age in map(self.age_at_kill, begins) if age is not None]
        age = min(ages, default=None)
        limit = WAITING_MAX_S if self.waited else FORGOTTEN_MAX_S
        if self.waited and self.killed_meanwhile(asked, answered):
            # The answer was on its way.
            self.forgotten = 0
        elif age is not None and age <= limit:
            self.forgotten = age
        elif self.killed_meanwhile(asked, answered):
            self.forgotten = 0
        else:
            self.say("job-unknown", f"began {age} s before a kill of rank 0")

    def account_events(self):
        for name in ("start", "finish", "clean"):
            if len(self.named(name)) > 1:
                self.say("event-twice", f"{name}: {len(self.named(name))} times")
        exec_events = [event["name"] for event in self.read("guest.exec.eventlog") or []]
        for name in ("init", "starting", "complete", "done"):
            if exec_events.count(name) > 1:
                self.say("exec-event-twice", f"{name}: {exec_events.count(name)} times")
        if not self.named("clean"):
            last = self.events[-1]["name"]
            self.say("hangs", f"last event is {last}")
            return
        self.account_release()
        self.no_space = self.ended_by_full_disk()
        self.unserved = self.ended_unserved()
        self.untyped = self.ended_untyped()
        if not self.is_excused():
            self.account_reason()
            self.account_status()

    def is_excused(self):
        """It may have ended otherwise than its kind does."""
        return self.no_space or self.unserved or self.attach_ended()

    def attach_ended(self):
        """The client has failed, and the job was cancelled because of that."""
        attached = self.attempt.attached
        return attached and attached.returncode > 0 and not self.untyped

    def ended_untyped(self):
        """The job ended while the client's rank, or its own, or one above them, was away."""
        if not self.told("stdin not accepted by job") or self.told("cancelled: yes"):
            # If it could be cancelled it had not ended.
            return False
        return any(
            begin <= event["timestamp"] <= end + REJOIN_S
            for event in self.named("finish")
            for begin, end in self.away({self.attempt.attached_by, *self.leaders()})
        )

    def away(self, ranks):
        """From when to when these ranks were away, or ranks above them."""
        above = {one for rank in ranks for one in (0, (rank - 1) // 2, rank)}
        return [span for one in above for span in self.faults.away.get(one, [])]

    def leaders(self):
        """The ranks on which the leader shell has begun."""
        log = self.read("guest.exec.eventlog") or []
        return [event["context"]["leader-rank"] for event in log if event["name"] == "shell.init"]

    def told(self, words):
        """When the attempt's story says this, in seconds since the epoch."""
        return [then for then, text in self.attempt.story if words in text]

    def typed_to_forgotten(self):
        """The client ended because the KVS had forgotten the run that it typed into: the last run had
        no shell yet (rfc/0008, 8.10)."""
        ended = self.told("attach exited")
        log = self.read("guest.exec.eventlog") or []
        inits = [event["timestamp"] for event in log if event["name"] == "shell.init"]
        allocated = max((event["timestamp"] for event in self.named("alloc")), default=math.inf)
        killed = self.killed_meanwhile(self.attempt.asked_at, allocated)
        return bool(killed and ended and inits) and ended[-1] < inits[-1]

    def ended_unserved(self):
        """Without the service the job manager waits for nobody (rfc/0008, 8.10)."""
        fatal = [e for e in self.named("exception") if e["context"]["severity"] == 0]
        if not fatal or self.named("finish"):
            return False
        times = list(self.faults.reloaded_0)
        if self.is_freed_at_once(fatal[0]):
            # The job manager is loaded a moment before the service.
            times += [(begin, end + REJOIN_S) for begin, end in self.faults.away.get(0, [])]
        return any(begin <= fatal[0]["timestamp"] <= end for begin, end in times)

    def is_freed_at_once(self, exception):
        """The job manager did not wait for the service: nothing comes between."""
        after = [event["name"] for event in self.events if event["timestamp"] > exception["timestamp"]]
        return after[:1] == ["free"]

    def ended_by_full_disk(self):
        """A shell that cannot be recorded is not started, and its job ends (rfc/0004), as soon as its
        leader and rank 0 are there to say so."""
        for event in self.named("exception"):
            if "No space left on device" in event["context"].get("note", ""):
                rank = self.rank_in(event["context"]["note"])
                full = self.faults.full
                # flux-shell does not say where.
                ranks = full if rank is None else [rank]
                times = [time for rank in ranks for time in full.get(rank, [])]
                asked, said = self.attempt.asked_at, event["timestamp"]
                return any(begin <= said and asked <= end for begin, end in times)
        return False

    @staticmethod
    def rank_in(note):
        found = re.search(r"\(rank (\d+)\)", note)
        return int(found.group(1)) if found else None

    def account_reason(self):
        fatal = [e["context"] for e in self.named("exception") if e["context"]["severity"] == 0]
        said = "; ".join(f"{e['type']}: {e.get('note', '')}" for e in fatal)
        if self.job.exception is None:
            if fatal:
                self.say("exit-timeout" if "exit-timeout" in said else "exception", said)
        elif not fatal and self.job.raised_by_shell and self.killed_while_it_ran():
            self.unheard = True
        elif not fatal:
            self.say("no-exception", f"no {self.job.exception}, status {self.status()}")
        elif fatal[0]["type"] != self.job.exception or not (
            # What a shell has raised the service knows without its note (rfc/0003, 3.9).
            self.job.note in fatal[0]["note"] or "its note was lost" in fatal[0]["note"]
        ):
            self.say("other-exception", f"not {self.job.exception} {self.job.note}: {said}")

    def status(self):
        finish = self.named("finish")
        return finish[0]["context"]["status"] if finish else None

    def account_status(self):
        if self.job.status is not None and self.status() != self.job.status:
            self.say("status", f"{self.status()}, not {self.job.status}")

    def account_release(self):
        """Each rank is released once after each allocation."""
        seen = set()
        for event in self.events:
            if event["name"] == "alloc":
                seen = set()
            if event["name"] != "release" or event["context"]["ranks"] == "all":
                continue
            ranks = set(members(event["context"]["ranks"]))
            if ranks & seen:
                self.say("released-twice", f"{sorted(ranks & seen)}")
            seen |= ranks
        final = [event for event in self.named("release") if event["context"]["final"]]
        is_freed = self.named("free") and self.named("start") and not final
        if is_freed and not self.ended_unserved():
            self.say("freed-unreleased", "free, and job-exec has not released the last ranks")

    def account_tasks(self):
        if self.unserved and not self.named("release"):
            # Its namespace went with rank 0's broker, and nobody was asked to restore it.
            return
        if self.job.kind == "batch":
            for number in range(STEPS):
                self.account_step(number)
            return
        self.tasks = self.account_starts(self.without_forgotten(self.tasks))
        if self.attempt.attached and self.typed_to_forgotten():
            self.again = self.again or 0
        if self.attempt.attached and self.again is not None:
            # What was typed into the forgotten run is lost with it (rfc/0008, 8.10).
            return
        if self.job.kind == "file":
            self.account_file(self.tasks, f"{self.attempt.directory}/output")
        elif self.job.prints:
            self.account_output()
        if self.attempt.attached:
            self.account_attached()

    def account_step(self, number):
        """A job of a nested instance."""
        directory = f"{self.attempt.directory}/{number}"
        # A nested instance that the KVS has forgotten goes on with its steps until it is ended. How
        # old it was when that happened tells when it was submitted.
        tasks = self.without_forgotten(read_tasks(directory), self.attempt.answered_at)
        self.account_file(self.account_starts(tasks, f"step {number}: "), f"{directory}.out")

    def without_forgotten(self, tasks, submitted=math.inf):
        """Those of the last allocation: the KVS may have forgotten one before, and its tasks have
        been ended and started again (rfc/0008, 8.10)."""
        last = max((event["timestamp"] for event in self.named("alloc")), default=math.inf)
        newest = {}
        for task in tasks:
            newest[task.rank] = max(task.started, newest.get(task.rank, 0))

        def is_before(task):
            off = self.clocks_apart_s if task.started == newest[task.rank] else 0
            return task.started < last - off

        before = [task for task in tasks if is_before(task)]
        fenced = [
            task
            for task in tasks
            if last <= task.started < newest[task.rank]
            and (self.is_fenced(task, last) or self.is_unended(task, last))
        ]
        if fenced:
            self.again = self.again or 0
        for task in before:
            self.account_forgotten(task.started, f"rank {task.rank}", submitted)
        return [task for task in tasks if task not in before and task not in fenced]

    def account_forgotten(self, started, what, submitted=math.inf):
        """What was started for an allocation that the KVS has forgotten."""
        asked = started - EXECUTED_LATE_S
        ages = [self.age_at_kill(then) for then in (started, asked, submitted)]
        age = min((age for age in ages if age is not None), default=math.inf)
        if age > FORGOTTEN_MAX_S:
            self.say("started-again", f"{what}: {age} s before a kill of rank 0")
        else:
            self.again = max(self.again or 0, age)

    def is_fenced(self, task, allocated):
        """It is of a run that the job manager has forgotten: its rank had found the unit, and had
        begun to end it, before the task was started."""
        if not self.killed_meanwhile(self.attempt.asked_at, allocated):
            return False
        words = (f"{self.attempt.id[1:]}: stopping", "it belongs to another job")
        return any(then < task.started < then + FENCED_S for then in self.instance.logged(*words))

    def is_unended(self, task, allocated):
        """It is of a run that the job manager has forgotten, on a rank that the last run does not
        have. Its module had not been loaded for long enough to ask whether it may go on."""
        if not self.killed_meanwhile(self.attempt.asked_at, allocated):
            return False
        words = (f"{self.attempt.id[1:]}: stopping", "the job manager does not have this job")
        return any(task.started < then for then in self.instance.logged(*words))

    def account_starts(self, tasks, where=""):
        """Each task once. Returns one for each."""
        once = {}
        for task in tasks:
            if task.rank in once:
                self.say("started-twice", f"{where}task {task.rank}")
            once[task.rank] = task
        if self.status() is None or not self.truth_is_complete():
            return list(once.values())
        missing = [rank for rank in range(self.job.ranks) if rank not in once]
        if missing and self.job.kind not in ("nocommand", "noshell"):
            self.say("not-started", f"{where}tasks {missing}")
        for task in once.values():
            if self.job.end != "never" and task.end is None:
                self.say("task-killed", f"{where}task {task.rank} after {len(task.lines)} lines")
            elif task.end and task.end.startswith("error"):
                self.say("task-error", f"{where}task {task.rank}: {task.end}")
        return list(once.values())

    def truth_is_complete(self):
        """A job that was ended early may not have had all of its tasks."""
        return self.job.end != "never" and not self.no_space and not self.attach_ended()

    def account_output(self):
        output = self.read("guest.output") or []
        by_rank = {}
        for event in output:
            context = event["context"]
            if event["name"] != "data" or context["stream"] != "stdout" or "data" not in context:
                continue
            for rank in members(context["rank"]):
                data = context["data"] * context.get("repeat", 1)
                by_rank[rank] = by_rank.get(rank, "") + data
        for task in self.tasks:
            self.compare(task, by_rank.get(task.rank, "").splitlines(), f"task {task.rank}")

    def account_file(self, tasks, path):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            lines = []
        for task in tasks:
            own = [line for line in lines if line.startswith(f"{task.rank} ")]
            self.compare(task, own, f"task {task.rank} in {os.path.basename(path)}")

    def account_attached(self):
        """What the client has printed, of all tasks."""
        if self.untyped:
            return
        if self.attach_ended():
            if not self.no_space:
                said = [text for _, text in self.attempt.story if "attach exited" in text]
                self.say("attach-ended", said[-1] if said else "it did not end by itself")
            return
        if self.attempt.attached.returncode < 0:
            self.say("attach-hangs", "the job was over, and the client had to be killed")
        self.account_file(self.tasks, f"{self.attempt.directory}-attached")

    def compare(self, task, got, where):
        said = task.lines
        if task.end is None and said and got == said[:-1]:
            # Killed between the truth and the pipe.
            return
        if got == said:
            self.compare_input(task, said, where)
            return
        numbers = {line: number for number, line in enumerate(said)}
        places = [numbers.get(line) for line in got]
        known = [place for place in places if place is not None]
        missing = sorted(set(range(len(said))) - set(known))
        if missing and task.end is None and missing == [len(said) - 1]:
            missing = []
        if missing:
            # All of task 0 is written by the leader's shell, the rest comes to it by messages.
            whose = "leader" if task.rank == 0 else "follower"
            count = f"{len(missing)} of {len(said)}"
            self.say(f"{whose}-lines-missing", f"{where}: {count}: {spans(missing)}")
        if len(known) > len(set(known)):
            twice = sorted({place for place in known if known.count(place) > 1})
            self.say("lines-twice", f"{where}: {len(twice)} of {len(said)}: {spans(twice)}")
        if list(dict.fromkeys(known)) != sorted(set(known)):
            self.say("lines-disorder", f"{where}")
        if None in places:
            strange = [line for line, place in zip(got, places) if place is None]
            self.say("lines-strange", f"{where}: {len(strange)}, the first: {strange[0][:80]!r}")

    def compare_input(self, task, said, where):
        expected = self.job.expected_lines(self.attempt.directory)
        if expected is None or task.end is None:
            return
        expected = [f"{task.rank} {line}" for line in expected]
        if said != expected:
            lost = len(set(expected) - set(said))
            self.say("input", f"{where}: {len(said)} of {len(expected)} lines, {lost} lost")


def spans(numbers):
    """As ranges, the first ten."""
    result = []
    for number in numbers:
        if result and result[-1][1] == number - 1:
            result[-1][1] = number
        else:
            result.append([number, number])
    text = ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in result[:10])
    return text + (", ..." if len(result) > 10 else "")
