"""Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Run by `flux modprobe rc1`."""

import json
import subprocess
import sys

import flux.kvs
from flux.modprobe import task


@task(
    "unallocate",
    ranks="0",
    after=["kvs", "check-clean-shutdown"],
    before=["job-manager"],
    needs=["kvs", "content-backing", "job-manager"],
)
def unallocate(context):
    """Removes the resources of jobs that the KVS has gone back to before their allocation.

    The scheduler commits a job's R, and the job manager the alloc event a moment later. If a
    checkpoint fell between the two and the broker then died, the job manager would count the job
    as allocated, ask for its resources nevertheless, and stop scheduling at the answer."""
    try:
        if subprocess.run(["flux", "startlog", "--check", "--quiet"], check=False).returncode == 0:
            return
        for key in jobs(context.handle):
            if has_lost_its_alloc(context.handle, key):
                print(f"job-exec-rs: removing {key}.R, of which there is no alloc event")
                flux.kvs.put_unlink(context.handle, f"{key}.R")
                flux.kvs.commit(context.handle)
    except (OSError, ValueError) as error:
        # The instance is better off with it undone than down.
        print(f"job-exec-rs: looking for R without alloc events: {error}", file=sys.stderr)


def jobs(handle, key="job", depth=4):
    """Keys of all jobs: RFC 16, job.XXXX.XXXX.XXXX.XXXX."""
    if depth == 0:
        yield key
        return
    try:
        names = list(flux.kvs.get_dir(handle, key).directories())
    except FileNotFoundError:
        return
    for name in names:
        yield from jobs(handle, f"{key}.{name}", depth - 1)


def has_lost_its_alloc(handle, key):
    names = set(flux.kvs.get_dir(handle, key))
    # A job that was started, and most are, has `guest`. Its eventlog need not be read.
    if "R" not in names or "guest" in names:
        return False
    return "alloc" not in events(handle, f"{key}.eventlog")


def events(handle, key):
    said = flux.kvs.get(handle, key)
    # A log of one event alone is decoded already.
    if isinstance(said, dict):
        return [said["name"]]
    return [json.loads(line)["name"] for line in said.splitlines()]
