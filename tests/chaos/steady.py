"""usage: steady.py [--kills N] [--keep DIRECTORY]

A job on all ranks prints a numbered line each 10 ms, and repeats what is typed into `flux job
attach`, while brokers of each kind are killed so many times. After each kill somebody types a line,
sends a signal with `flux job kill`, and runs a command in the job with `flux exec --jobid`. At the
end every line of every task must be there once, in order."""

import argparse
import os
import signal
import subprocess
import sys
from collections import Counter

from account import read_tasks
from instance import SIZE, pause, run, started
from jobs import PYTHON, SHELL, exited

HERE = os.path.dirname(os.path.abspath(__file__))
STATUS = 3
# Lines of each task between two kills.
MORE = 20
# With kary:2 ranks 1 and 2 are children of 0, and 3 is one of 1.
KINDS = {"leaf": [3], "inner": [1], "both children": [1, 2], "rank 0": [0], "all": range(SIZE)}


class Reader:
    """Reads the job's output as it comes, and types lines."""

    def __init__(self, instance, job):
        environment = dict(os.environ, FLUX_URI=instance.uri(0, "resume"))
        command = ["flux", "job", "attach", "--unbuffered", job]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1
        )
        self.lines = [[] for _ in range(SIZE)]

    def read(self):
        line = self.process.stdout.readline()
        if line:
            rank, _, rest = line.partition(" ")
            self.lines[int(rank)].append(rest.rstrip("\n"))
        return line != ""

    def await_all(self, is_it):
        """Until each task has said something like that."""
        waiting = set(range(SIZE))
        while waiting:
            assert self.read(), f"the output has ended: {self.process.wait()}"
            waiting = {rank for rank in waiting if not (self.lines[rank] and is_it(self.lines[rank]))}

    def await_more(self):
        counts = [len(lines) + MORE for lines in self.lines]
        while any(len(lines) < count for lines, count in zip(self.lines, counts)):
            assert self.read(), f"the output has ended: {self.process.wait()}"

    def type(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def read_all(self):
        while self.read():
            pass
        self.process.wait()


def submit(instance, directory):
    os.makedirs(directory)
    command = ["submit", f"-N{SIZE}", f"-n{SIZE}", "--cwd=/", *SHELL]
    command += [PYTHON, "-I", f"{HERE}/task.py", directory, str(STATUS), "steady"]
    job = instance.flux(*command).strip()
    instance.flux("job", "wait-event", "-t60", job, "start")
    return job


def kill(instance, ranks):
    instance.hold(ranks)
    instance.signal(ranks, signal.SIGKILL)
    instance.let_go(ranks)
    instance.await_all()


def use(instance, job, reader, number):
    """What a user does with a job that runs."""
    reader.type(f"input {number}")
    reader.await_all(lambda lines: f"typed input {number}" in lines[-2 * MORE :])
    signals = [count_signals(lines) for lines in reader.lines]
    instance.flux("job", "kill", "-s", "USR1", job)
    while any(count_signals(lines) <= count for lines, count in zip(reader.lines, signals)):
        assert reader.read(), "the output has ended"
    said = instance.flux("exec", f"--jobid={job}", "echo", f"exec {number}")
    assert said.splitlines() == [f"exec {number}"] * SIZE, said


def count_signals(lines):
    return sum(line == "signal" for line in lines)


def check(instance, job, directory, reader):
    said = instance.flux("job", "eventlog", job)
    assert " exception " not in said, said
    assert f"finish status={exited(STATUS)}" in said, said
    tasks = read_tasks(directory)
    assert sorted(task.rank for task in tasks) == list(range(SIZE)), tasks
    for task in tasks:
        seen = [f"{task.rank} {line}" for line in reader.lines[task.rank]]
        assert seen == task.lines, f"task {task.rank}: {difference(seen, task.lines)}"
        print(f"task {task.rank}: {len(seen)} lines")


def difference(seen, told):
    lost, more = Counter(told) - Counter(seen), Counter(seen) - Counter(told)
    return f"{len(told)} lines, lost {list(lost)[:5]}, too many {list(more)[:5]}"


def play(instance, options):
    directory = instance.path("jobs", "steady")
    job = submit(instance, directory)
    reader = Reader(instance, job)
    number = 0
    for _ in range(options.kills):
        for kind, ranks in KINDS.items():
            reader.await_more()
            kill(instance, ranks)
            try:
                use(instance, job, reader, number)
            except (AssertionError, subprocess.CalledProcessError):
                print(f"kill {number}, of {kind}")
                raise
            number += 1
    reader.process.stdin.close()
    instance.flux("job", "wait-event", "-t120", job, "clean")
    reader.read_all()
    check(instance, job, directory, reader)
    print(f"steady: {options.kills} kills of each of {', '.join(KINDS)}")


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--keep", help="directory for the brokers' logs, if anything is wrong")
    options = parser.parse_args()
    with started(peer_timeout=60) as instance:
        try:
            play(instance, options)
        except Exception:
            if options.keep:
                for rank in range(SIZE):
                    run("cp", instance.path(f"log-{rank}"), options.keep)
            raise


sys.exit(main())
