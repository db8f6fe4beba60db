"""usage: task.py DIRECTORY END lines COUNT PER-BURST PAUSE
          task.py DIRECTORY END echo
          task.py DIRECTORY END steady
          task.py DIRECTORY END run COMMAND...

One task of a job. What it does is also written to a file of its own below DIRECTORY, which is the
truth that the account compares with what Flux says: "start TIME", "cgroup PATH", each line before it
is printed, "end HOW". END is an exit status, "signal NUMBER", or "never"."""

import os
import select
import signal
import subprocess
import sys
import time


class Truth:
    def __init__(self, directory, rank):
        path = os.path.join(directory, f"{rank}.{os.getpid()}.{time.time_ns()}")
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def note(self, text):
        os.write(self.file, text.encode() + b"\n")

    def say(self, text):
        """To the truth first: a line that only Flux has would be nobody's."""
        self.note(f"line {text}")
        data = text.encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


def print_lines(truth, rank, count, burst, pause):
    for number in range(count):
        truth.say(f"{rank} {number} {'x' * (number % 40)}")
        if (number + 1) % burst == 0:
            time.sleep(pause)


def echo(truth, rank):
    for line in sys.stdin:
        truth.say(f"{rank} {line.rstrip()}")


def steady(truth, rank):
    """A line each 10 ms, until its input ends. Says what is typed, and that SIGUSR1 has come."""
    signals = []
    signal.signal(signal.SIGUSR1, lambda *_: signals.append("signal"))
    number = 0
    while True:
        truth.say(f"{rank} {number}")
        number += 1
        while signals:
            truth.say(f"{rank} {signals.pop()}")
        ready, _, _ = select.select([0], [], [], 0.01)
        # There is one reader of the pipe, and a line in it is whole.
        if ready:
            typed = os.read(0, 4096).decode()
            if not typed:
                return
            for line in typed.splitlines():
                truth.say(f"{rank} typed {line}")


def work(truth, rank, what, *arguments):
    if what == "lines":
        print_lines(truth, rank, int(arguments[0]), int(arguments[1]), float(arguments[2]))
    elif what == "echo":
        echo(truth, rank)
    elif what == "steady":
        steady(truth, rank)
    else:
        return subprocess.run(arguments, close_fds=False, check=False).returncode
    return 0


def own_cgroup():
    """Of cgroup v2; empty where there is none."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = [line.rstrip("\n").split(":", 2) for line in file]
    return next((path for number, _, path in paths if number == "0"), "")


def main(directory, end, *what):
    rank = os.environ["FLUX_TASK_RANK"]
    truth = Truth(directory, rank)
    truth.note(f"start {time.time()}")
    truth.note(f"cgroup {own_cgroup()}")
    try:
        status = work(truth, rank, *what)
    except OSError as error:
        truth.note(f"end error {error}")
        return 99
    if end == "never":
        while True:
            signal.pause()
    truth.note(f"end {status or end}")
    if end.startswith("signal"):
        os.kill(os.getpid(), int(end.split()[1]))
    return status or int(end)


sys.exit(main(*sys.argv[1:]))
