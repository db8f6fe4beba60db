"""What must not be left when all jobs have ended."""

import json
import os
import time

from instance import CORES, SIZE, pause, job_units

# What the service says of such a node.
NO_RECORDS = "cannot keep records of jobs: cannot "


def units(instance):
    found = job_units().items()
    return [state for name, state in found if name not in instance.strangers]


def records(instance):
    """Records and output of shells."""
    found = []
    for rank in range(SIZE):
        found += [f"rank {rank}: {name}" for name in sorted(os.listdir(instance.records(rank)))]
    return found


def namespaces(instance, unserved):
    """But for those of jobs that the service was never asked to end (rfc/0008, 8.10)."""
    known = {"primary"} | {instance.flux("job", "namespace", a.id).strip() for a in unserved}
    listed = instance.flux("kvs", "namespace", "list").splitlines()[1:]
    return [line for line in listed if line.split()[0] not in known]


def keys(instance, attempts):
    """What the service keeps beside a running job (rfc/0008, 8.11)."""
    found = []
    for attempt in attempts:
        if not attempt.id:
            continue
        directory = instance.flux("job", "id", "--to=kvs", attempt.id).strip()
        for name in instance.flux("kvs", "dir", directory, check=False).splitlines():
            if ".guest-" in name:
                found.append(name[:80])
    return found


def processes(instance):
    """By their environment; zombies have none."""
    found = []
    mark = f"CHAOS_JOB={instance.tag}-".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                marks = [item for item in file.read().split(b"\0") if item.startswith(mark)]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marks:
            found.append(f"{pid} {marks[0].decode()} {command[:60]}")
    return found


def cores(instance):
    free = instance.flux("resource", "list", "-s", "free", "-no", "{ncores}").split()
    return [] if free == [str(SIZE * CORES)] else [f"{free} of {SIZE * CORES} are free"]


def drained(instance):
    return instance.flux("resource", "drain", "-no", "{ranks} {reason}").splitlines()


def is_of_disk(line, full):
    """Whether a node was drained while its disk was full ([disk-drains])."""
    rank, _, reason = line.partition(" ")
    return NO_RECORDS in reason and rank in map(str, full)


def give_back(instance, full):
    """Nodes that were drained while their disks were full, as an administrator does who has made room."""
    drains = instance.flux("resource", "drain", "-no", "{ranks} {reason}", check=False)
    for line in drains.splitlines():
        if is_of_disk(line, full):
            instance.flux("resource", "undrain", line.split()[0], check=False)


def restart_of(instance, rank):
    """What has become of the shells that its module has found. None: it does not answer."""
    text = instance.flux("module", "stats", "job-exec", rank=rank, check=False)
    return json.loads(text)["restart"] if text else None


def ledgers(instance, size):
    """Ranks whose account of the shells that they have found since their load does not add up."""

    def adds_up(one):
        return one and one["found"] == one["running"] + one["ended"] + one["lost"] + one["never-started"]

    found = ((rank, restart_of(instance, rank)) for rank in range(size))
    return [f"rank {rank}: {one}" for rank, one in found if not adds_up(one)]


def looks(instance, unserved):
    """What goes by itself, by kind."""
    return {
        "unit-left": lambda: units(instance),
        "record-left": lambda: records(instance),
        "namespace-left": lambda: namespaces(instance, unserved),
        "process-left": lambda: processes(instance),
        "cores-left": lambda: cores(instance),
        "ledger-open": lambda: ledgers(instance, SIZE),
    }


def left(instance, attempts, unserved, patience, looks_at=looks):
    """What is left, by kind, after what goes by itself has gone; what there was of that first, and
    what last. No one event tells of it all."""
    until = time.monotonic() + patience
    look_at = looks_at(instance, unserved)
    found = {kind: look() for kind, look in look_at.items()}
    first = last = found
    while any(found.values()) and time.monotonic() < until:
        last = found
        pause(0.5)
        found = {kind: look_at[kind]() if what else [] for kind, what in found.items()}
    found["key-left"] = keys(instance, attempts)
    found["drained"] = drained(instance)
    return not_empty(found), not_empty(first), not_empty(last)


def not_empty(found):
    return {kind: what for kind, what in found.items() if what}
