"""usage: young.py --image DIRECTORY [--trials N] [--ages S,S]

Cuts the power of rank 0's node when jobs on the other nodes are so many seconds old, and gives it back.
A job that the instance knows then must go on. One that it has forgotten must be young, and its shells
must be gone soon after all brokers are back. One line for each trial."""

import argparse
import os
import shutil
import sys
import tempfile
import time

from account import FORGOTTEN_MAX_S
from cluster import Cluster
from instance import pause
from left import drained

# How long shells of a forgotten job may be there when all brokers are back.
GONE_MAX_S = 15
# When to give up.
PATIENCE_S = 400


def arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--image", required=True, help="what tests/nodes/image has made")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--ages", default="15,3,1", help="in seconds, the oldest first")
    parser.add_argument("--by-hand", action="store_true", help="as in tests/nodes/run")
    return parser.parse_args()


def submit(cluster, ages):
    """The id of each job, with when its start was seen."""
    jobs = {}
    for age, younger in zip(ages, [*ages[1:], 0]):
        command = ["submit", "-N2", "-n2", "--requires=rank:1-2", "--cwd=/", "sleep", "inf"]
        job = cluster.flux(*command).strip()
        cluster.flux("job", "wait-event", "-t60", job, "start")
        jobs[job] = time.time()
        pause(max(0, age - younger - (time.time() - jobs[job])))
    return jobs


def jobs_with_units(cluster):
    units = [unit for rank in cluster.ranks for unit in cluster.probe(rank)["units"]]
    return {unit.split("shell-")[1].split("-")[1] for unit in units}


def await_gone(cluster, forgotten):
    """How long units of these jobs are there."""
    began = time.monotonic()
    plain = {f"f{job[1:]}" for job in forgotten}
    while plain & jobs_with_units(cluster) and time.monotonic() - began < PATIENCE_S:
        pause(0.5)
    return time.monotonic() - began


def end(cluster, job):
    """What a job that goes on has suffered."""
    said = cluster.flux("job", "eventlog", job)
    cluster.flux("cancel", job)
    cluster.flux("job", "wait-event", "-t120", job, "clean")
    return [line for line in said.splitlines() if " exception " in line or " finish " in line]


def play(cluster, ages):
    """A line, and whether all was right."""
    jobs = submit(cluster, ages)
    cut = time.time()
    cluster.nodes.cut_power(0)
    cluster.nodes.boot(0)
    cluster.nodes.await_boot(0)
    cluster.await_all()
    known = cluster.flux("jobs", "-ano", "{id.f58}").split()
    forgotten = {job: cut - begun for job, begun in jobs.items() if job not in known}
    gone = await_gone(cluster, forgotten)
    suffered = [line for job in jobs if job in known for line in end(cluster, job)]
    was_drained = drained(cluster)
    old = [age for age in forgotten.values() if age > FORGOTTEN_MAX_S]
    shown = ", ".join(f"{cut - begun:.1f}" for begun in jobs.values())
    which = ", ".join(f"{age:.1f}" for age in forgotten.values()) or "none"
    line = f"jobs of {shown} s: forgotten {which}; gone after {gone:.1f} s"
    for what in (*suffered, *was_drained):
        line += f"; {what}"
    return line, not (old or suffered or was_drained or gone > GONE_MAX_S)


def main():
    options = arguments()
    os.umask(0)
    ages = [float(age) for age in options.ages.split(",")]
    top = tempfile.mkdtemp(prefix="nodes-")
    cluster = Cluster(3, options.image, top, by_hand=options.by_hand)
    good = True
    try:
        cluster.start()
        for trial in range(options.trials):
            line, right = play(cluster, ages)
            good = good and right
            print(f"trial {trial + 1}: {line}{'' if right else '; WRONG'}", flush=True)
    finally:
        cluster.stop()
        shutil.rmtree(top, ignore_errors=True)
    return 0 if good else 1


sys.exit(main())
