"""The kinds of jobs, and what each must have come to."""

import os
import signal
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
# Debian's, without what the instance's own Python has on its path.
PYTHON = "/usr/bin/python3"


# Jobs of a nested instance, one after the other.
STEPS = 3
# flux-shell ends a job whose tasks have not all ended exit-timeout after the first: 30 s, unless it
# is told otherwise. A rank can be out of reach for longer (rfc/0008, 8.10): a broker whose parent is
# killed while it stops waits for 60 s (flux-core broker/state_machine.c, goodbye_timeout), and may
# be away for 40 s then.
EXIT_TIMEOUT_S = 180
SHELL = ("-ocpu-affinity=off", f"-oexit-timeout={EXIT_TIMEOUT_S}s")


def exited(status):
    return status << 8


class Job:
    """A job of the plan. The class is the kind: what its tasks do, and how it ends."""

    end = "0"
    # The wait status in `finish`; None: any, or no `finish` at all.
    status = 0
    # The type of the fatal exception, if there is to be one.
    exception = None
    # Its shell raises the exception itself.
    raised_by_shell = False
    # A part of the exception's note.
    note = ""
    max_ranks = 4
    # Whether its tasks print what is in the job's KVS output.
    prints = True
    # Options of flux-shell.
    shell = SHELL
    program = f"{HERE}/task.py"

    def __init__(self, number, at, draw, size=4):
        self.number, self.at, self.draw, self.size = number, at, draw, size
        self.ranks = draw.randint(1, min(self.max_ranks, size))
        # Of a job of one rank: where it has to run, so that all ranks lead some.
        self.where = draw.choice([None, draw.randrange(size)]) if self.ranks == 1 else None
        lengths = [(0.1, 3), (3, 15), (10, 30)]
        self.seconds = draw.uniform(*draw.choice(lengths))
        # When somebody acts on it, after it was submitted.
        self.act_at = draw.uniform(0, 12)
        self.shape()
        # Each attempt to submit it: Attempt.
        self.attempts = []
        # Nobody submits it any more.
        self.settled = threading.Event()

    def shape(self):
        """What else is random about this kind."""

    @property
    def kind(self):
        return type(self).__name__.lower()

    def task(self, directory):
        return [PYTHON, "-I", self.program, directory, self.end] + self.what()

    def what(self):
        """A line each 10 ms."""
        return ["lines", str(max(1, int(self.seconds * 100))), "1", "0.01"]

    def options(self, directory):
        return []

    def command(self, directory, name):
        command = ["flux", "submit", f"-N{self.ranks}", f"-n{self.ranks}", f"--job-name={name}"]
        command += [*self.shell, "--cwd=/"] + self.options(directory)
        if self.where is not None:
            command += [f"--requires=rank:{self.where}"]
        return command + self.task(directory)

    def prepare(self, directory):
        """Files that the job reads."""

    def act(self, attempt):
        """What somebody does to the running job."""

    def expected_lines(self, directory):
        """What a task that ended as it should has said, if it is not for the truth alone to say."""
        return None

    def __str__(self):
        where = f" on rank {self.where}" if self.where is not None else ""
        what = f"{self.kind}, {self.ranks} ranks{where}, {self.seconds:.1f} s"
        return f"{self.at:7.2f} job {self.number}: {what}"


def make_for_all(path):
    """On the nodes' shared file system a file is root's until it is its user's, and a shell can be
    killed in between: the job, when it is started again, could not open it."""
    with open(path, "w", encoding="utf-8"):
        os.chmod(path, 0o666)


class Lines(Job):
    pass


class Bursts(Job):
    def what(self):
        return ["lines", "3000", "300", str(self.seconds / 10)]


class File(Job):
    """Its output goes to a file."""

    def options(self, directory):
        return [f"--output={directory}/output"]

    def prepare(self, directory):
        make_for_all(f"{directory}/output")


class Input(Job):
    """stdin from a file, which a slow reader would not notice: so each line is waited for."""

    def options(self, directory):
        return [f"--input={directory}/input"]

    def prepare(self, directory):
        with open(f"{directory}/input", "w", encoding="utf-8") as file:
            file.writelines(f"input {number}\n" for number in range(2000))

    def what(self):
        return ["echo"]

    def expected_lines(self, directory):
        return [f"input {number}" for number in range(2000)]


class Attach(Job):
    """stdin by `flux job attach`."""

    max_ranks = 2

    def what(self):
        return ["echo"]

    def act(self, attempt):
        self.rank = self.draw.randrange(self.size)
        attempt.attach(self.rank, int(self.seconds * 20))

    def expected_lines(self, directory):
        return [f"typed {number}" for number in range(int(self.seconds * 20))]


class Fails(Job):
    end, status = "3", exited(3)


class Dies(Job):
    def shape(self):
        number = self.draw.choice([signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
        self.end, self.status = f"signal {int(number)}", exited(128 + number)


class Cancelled(Job):
    end, status, exception = "never", None, "cancel"

    def act(self, attempt):
        attempt.cancel()


class Timeout(Job):
    end, status, exception = "never", None, "timeout"

    def options(self, directory):
        return [f"-t{2 + self.seconds / 2:.1f}s"]


class NoShell(Job):
    status, exception, note = None, "exec", "/nonexistent/shell"
    prints = False

    def options(self, directory):
        return ["--setattr=system.exec.job_shell=/nonexistent/shell"]


class NoCommand(Job):
    status, exception, note = exited(127), "exec", "No such file"
    raised_by_shell = True
    prints = False

    def task(self, directory):
        return ["/nonexistent/command"]


class Pmi(Job):
    """Exchanges by PMI in a loop."""

    prints = False

    def shape(self):
        self.count = self.draw.randint(50, 400)

    def what(self):
        return ["run", "flux", "pmi", "exchange", f"--count={self.count}"]


class Batch(Job):
    """A nested instance that runs jobs of its own."""

    prints = False

    def prepare(self, directory):
        make_for_all(f"{directory}/output")
        task = " ".join(self.task(f"{directory}/$number"))
        options = " ".join(self.shell)
        run = f"flux run -N{self.ranks} -n{self.ranks} {options} {task}"
        with open(f"{directory}/script", "w", encoding="utf-8") as file:
            file.write(
                f"#!/bin/sh\numask 0\nfor number in {' '.join(map(str, range(STEPS)))}; do\n"
                f"mkdir {directory}/$number; {run} >{directory}/$number.out || exit $?\ndone\n"
            )

    def command(self, directory, name):
        command = ["flux", "batch", f"-N{self.ranks}", f"-n{self.ranks}", f"--job-name={name}"]
        command += [*self.shell, "--cwd=/", f"--output={directory}/output"]
        return command + [f"{directory}/script"]

    def what(self):
        return ["lines", str(max(1, int(self.seconds * 25))), "1", "0.01"]


KINDS = {
    kind.__name__.lower(): kind
    for kind in (Lines, Bursts, File, Input, Attach, Fails, Dies, Cancelled, Timeout, NoShell,
                 NoCommand, Pmi, Batch)
}
