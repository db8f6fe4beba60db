"""usage: ride-shells.py ROUNDS

The tasks of a job print numbered lines on all ranks, and those of other ranks go through the
leader's shell. In each round each broker is killed once, then all at the same time. A job that
exchanges PMI keys runs meanwhile. Nothing may be missing, doubled or out of order."""

import os
import subprocess
import sys

from brokers import Brokers

ROUNDS = int(sys.argv[1])
SIZE = 3
STATUS = 3
# Lines of each task between two kills.
MORE = 20

# The pause is the pace of the output, a line each 10 ms. Nothing waits for it.
TASK = """
number=0
while ! test -e {stop}; do
	echo $FLUX_TASK_RANK $number
	number=$((number + 1))
	echo $number >{top}/count-$FLUX_TASK_RANK
	sleep 0.01
done
exit {status}
"""


def submit(brokers, *arguments):
    job = brokers.flux("submit", f"-N{SIZE}", f"-n{SIZE}", *arguments).strip()
    brokers.flux("job", "wait-event", "-t60", job, "start")
    return job


def end(brokers, job, status):
    brokers.flux("job", "wait-event", "-t120", job, "clean")
    eventlog = brokers.flux("job", "eventlog", job)
    assert " exception " not in eventlog, eventlog
    assert f"finish status={status << 8}" in eventlog, eventlog


class Reader:
    """Somebody who reads the job's output all the while: lines of each task, as they come."""

    def __init__(self, brokers, job):
        environment = dict(os.environ, FLUX_URI=brokers.uri(0, "resume"))
        command = ["flux", "job", "attach", "--quiet", job]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self.lines = [[] for _ in range(SIZE)]

    def read(self):
        line = self.process.stdout.readline()
        if line:
            rank, number = line.split()
            self.lines[int(rank)].append(int(number))
        return line != ""

    def await_more(self):
        """Until each task has printed some more."""
        before = [len(lines) for lines in self.lines]
        while any(len(lines) < count + MORE for lines, count in zip(self.lines, before)):
            assert self.read(), "the output has ended"

    def read_all(self):
        while self.read():
            pass
        self.process.wait()
        return self.lines


def printed(brokers, rank):
    """How many lines a task has printed, says the task."""
    with open(brokers.path(f"count-{rank}"), encoding="utf-8") as file:
        return int(file.read())


def ride(brokers):
    stop = brokers.path("stop")
    task = TASK.format(stop=stop, top=brokers.top, status=STATUS)
    writer = submit(brokers, "sh", "-c", task)
    reader = Reader(brokers, writer)
    exchange = submit(brokers, "sh", "-c", "flux pmi exchange --count=2000")
    for _ in range(ROUNDS):
        for ranks in (2,), (1,), (1, 2), range(SIZE):
            reader.await_more()
            brokers.kill(*ranks)
            brokers.start(*ranks)
            brokers.await_run(*ranks)
    reader.await_more()
    with open(stop, "w", encoding="utf-8"):
        pass
    end(brokers, writer, STATUS)
    end(brokers, exchange, 0)
    for rank, lines in enumerate(reader.read_all()):
        count = printed(brokers, rank)
        assert lines == list(range(count)), f"task {rank}: {count} lines, {holes(lines)}"
        print(f"task {rank}: {count} lines")


def holes(lines):
    return [(a, b) for a, b in zip(lines, lines[1:]) if b != a + 1] or lines[-1:]


with Brokers(SIZE, as_service=True) as instance:
    ride(instance)
