"""Prologs and epilogs of the instance, and the account of them. Each run of a script writes when it
begins and how it ends to a file of its job; that is the truth."""

import os
import re
from dataclasses import dataclass

# usage: script DIRECTORY prolog|epilog. The rank is that of the broker's socket. What it does goes
# between the two.
BEGINS = r"""#!/bin/bash
directory=$1 kind=$2
case $FLUX_JOB_ID in ƒ*) id=${FLUX_JOB_ID#ƒ} ;; *) id=${FLUX_JOB_ID#f} ;; esac
[[ $FLUX_URI =~ -([0-9]+)/local ]] && rank=${BASH_REMATCH[1]}
say() {
    echo "$EPOCHREALTIME $kind $rank $$ $1" >>"$directory/$id"
}
trap 'say terminated; exit 143' TERM
say begins
"""
ENDS = """
say ends
"""
# Takes up to 2 s.
SCRIPT = f"""{BEGINS}
sleep "$((RANDOM % 2)).$((RANDOM % 10))" </dev/null >/dev/null 2>&1 &
wait $!
{ENDS}"""


def configuration(instance, script):
    """Lines for the brokers' configuration. Makes the script."""
    path, directory = instance.path("script"), instance.path("scripts")
    instance.write("script", script)
    os.chmod(path, 0o755)
    os.makedirs(directory)
    tables = [
        f'[job-manager.{kind}]\nper-rank = true\ncommand = ["{path}", "{directory}", "{kind}"]\n'
        for kind in ("prolog", "epilog")
    ]
    return "[exec.perilog]\nenable = true\n" + "".join(tables)


@dataclass
class Script:
    """One run of a script, as it tells itself."""

    kind: str
    rank: int
    began: float
    # None: it was killed.
    ended: float = None
    how: str = None


def read_scripts(path):
    runs = {}
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        for line in file:
            time, kind, rank, pid, word = line.split()
            key = (kind, rank, pid)
            if word == "begins":
                runs[key] = Script(kind, int(rank), float(time))
            else:
                runs[key].ended, runs[key].how = float(time), word
    return sorted(runs.values(), key=lambda run: run.began)


def of_job(instance, job):
    # An id begins with f, or with ƒ.
    return read_scripts(instance.path("scripts", job[1:]))


def all_scripts(instance):
    directory = instance.path("scripts")
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return [run for name in names for run in read_scripts(os.path.join(directory, name))]


def kills_meanwhile(instance, faults):
    """How many kills came while a script ran on a rank that was killed."""
    runs = all_scripts(instance)
    kills = [(now, re.match(r"killed \[([^]]+)\]", text)) for now, text in faults.done]
    return sum(
        any(run.rank in ranks(found) and run.began <= now <= (run.ended or run.began) for run in runs)
        for now, found in kills
        if found
    )


def ranks(found):
    return [int(rank) for rank in found.group(1).split(",")]


def without_forgotten(account, runs):
    """Those of the last allocation. The KVS may have forgotten one before, of which a prolog had begun.
    Then its epilog follows, also if the job has been allocated again by then."""
    last = max((event["timestamp"] for event in account.named("alloc")), default=0)
    kept, owed = [], []
    for run in runs:
        if run.began < last:
            account.account_forgotten(run.began, f"{run.kind} on rank {run.rank}")
            owed += [run.rank] if run.kind == "prolog" else []
            owed = [rank for rank in owed if run.kind == "prolog" or rank != run.rank]
        elif run.kind == "epilog" and run.rank in owed:
            owed.remove(run.rank)
        else:
            kept.append(run)
    return kept


def members(idset):
    """Of a short idset."""
    result = []
    for part in idset.strip("[]").split(","):
        first, _, last = part.partition("-")
        result += range(int(first), int(last or first) + 1)
    return result


def account_scripts(account, allocated):
    """Each script of the job once, and in its place. `allocated` are the job's ranks."""
    runs = without_forgotten(account, of_job(account.instance, account.attempt.id))
    by_kind = {"prolog": {}, "epilog": {}}
    for run in runs:
        if run.rank in by_kind[run.kind]:
            account.say("script-twice", f"{run.kind} on rank {run.rank}")
        by_kind[run.kind][run.rank] = run
    prologs, epilogs = by_kind["prolog"], by_kind["epilog"]
    first = min((task.started for task in account.tasks), default=None)
    for rank in allocated if first is not None else []:
        run = prologs.get(rank)
        if not run or run.how != "ends" or run.ended > first:
            account.say("shell-before-prolog", f"rank {rank}: {run}, first task at {first}")
    if account.unserved:
        # The job manager has waited for nobody, so the epilogs may still be to come (rfc/0008, 8.10).
        return
    for rank, run in prologs.items():
        epilog = epilogs.get(rank)
        if not epilog or epilog.how != "ends":
            account.say("epilog-missing", f"rank {rank}: {epilog}")
        elif epilog.began < (run.ended or run.began):
            account.say("epilog-early", f"rank {rank}: {epilog}, and {run}")
    for event in account.named("release"):
        said = event["context"]["ranks"]
        for rank in allocated if said == "all" else members(said):
            epilog = epilogs.get(rank)
            if epilog and (epilog.ended is None or epilog.ended > event["timestamp"]):
                account.say("release-before-epilog", f"rank {rank}: {epilog}, {event}")
