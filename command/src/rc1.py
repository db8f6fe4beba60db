"""Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Run by `flux modprobe rc1`."""

import base64
import collections
import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import syslog

import flux
import flux.job
import flux.kvs
from flux.idset import IDset
from flux.job import JobID
from flux.modprobe import task

# What a job has in the KVS once it is allocated.
OF_ALLOCATED = {"R", "guest", "guest-checkpoint", "guest-leaders"}
# flux-core libkvs/kvs.h.
FLUX_KVS_READDIR = 1
# How it names them in an answer (RFC 11).
DIRECTORIES = {"dir", "dirref", "hdir"}
# So many questions are on their way to the KVS. One after the other they would take a millisecond each,
# and the instance waits.
AT_ONCE = 1000
# What flux-shell makes in the run directory (flux-core shell/tmpdir.c): its rank, and its job's id.
JOB_DIRECTORY = re.compile(r"jobtmp-\d+-(\S+)")
# What it is called where it is installed, and where it stands in for flux-core's.
NAMES = ("job-exec-rs", "job-exec")
# Units of shells (rfc/0004).
SHELLS = ("shell-*.service", "imp-shell-*.service")
UNIT = re.compile(r"(imp-)?shell-\d+-(?P<job>\w+)-\w+\.service")
# Why a node is drained, with the units.
OF_NOBODY = "job-exec-rs was not loaded here or on rank 0, and nobody owns its units:"
# What the module calls its hold on a job.
HOLD = "job-exec-rs"
# Said at a stop.
KEPT = "jobs that run are not canceled, and are found again at the next start (exec.keep-jobs)"
CANCELED = "jobs that run are canceled"
# Run at a stop. This file may be gone by then, and with it the module. What is canceled, and how, is as
# push-cleanup of flux-core's rc1 has it.
AT_STOP = (
    "flux python {file} || {{ "
    f"echo '{CANCELED}'; "
    "flux queue stop --quiet --all --nocheckpoint; "
    "flux resource acquire-mute; "
    "flux cancel --user=all --quiet --states RUN; "
    "flux queue idle --quiet; }}"
)
# systemd-logind keeps a file there for each user whose units live without a login.
LINGERING = "/var/lib/systemd/linger"


@task(
    "mend-jobs",
    ranks="0",
    after=["kvs", "check-clean-shutdown"],
    before=["job-manager"],
    needs=["kvs", "content-backing", "job-manager"],
)
def mend_jobs(context):
    """Removes from jobs what only a checkpoint has that the KVS has gone back to."""
    try:
        if subprocess.run(["flux", "startlog", "--check", "--quiet"], check=False).returncode == 0:
            return
        for key, unwanted in left_by_checkpoint(context.handle):
            with the_others_go_on(key):
                print(f"job-exec-rs: removing {', '.join(sorted(unwanted))} of {key}")
                for name in unwanted:
                    flux.kvs.put_unlink(context.handle, f"{key}.{name}")
                flux.kvs.commit(context.handle)
    except OSError as error:
        # The instance is better off with it undone than down.
        print(f"job-exec-rs: mending jobs after a crash: {error}", file=sys.stderr)


@contextlib.contextmanager
def the_others_go_on(key):
    """The other jobs still have to be looked at."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        print(f"job-exec-rs: mending {key} after a crash: {error}", file=sys.stderr)


def left_by_checkpoint(handle):
    """Jobs, and the names in their directories that nobody will use.

    The scheduler commits a job's R, and the job manager the alloc event a moment later. If a
    checkpoint fell between the two and the broker then died, the job manager would count the job
    as allocated, ask for its resources nevertheless, and stop scheduling at the answer. job-exec
    may have begun with the job already.

    A checkpoint of a job that has just ended can hold a reference to its guest namespace beside
    the data that was moved. The next checkpoint removes it, if the broker lives until then.

    Most jobs ended long ago: of these no eventlog is read."""
    allocated = {}
    for key, answer in ask(handle, jobs(handle), FLUX_KVS_READDIR):
        with the_others_go_on(key):
            names = answer.get()["val"]["data"]
            # A guest namespace is linked where its data will be.
            if names.get("guest", {}).get("type", "symlink") != "symlink":
                if "guest-checkpoint" in names:
                    yield key, {"guest-checkpoint"}
            elif "R" in names:
                allocated[key] = OF_ALLOCATED.intersection(names)
    for eventlog, answer in ask(handle, (f"{key}.eventlog" for key in allocated), 0):
        key = eventlog.removesuffix(".eventlog")
        with the_others_go_on(key):
            if not has_event(base64.b64decode(answer.get()["val"]["data"]), "alloc"):
                yield key, allocated[key]


def has_event(eventlog, name):
    lines = eventlog.decode().splitlines()
    return any(json.loads(line)["name"] == name for line in lines if f'"{name}"' in line)


def ask(handle, keys, flags):
    """Looks keys up, many at once, and yields each with the answer that is to come."""
    waiting = collections.deque()
    for key in keys:
        request = {"key": key, "namespace": "primary", "flags": flags}
        waiting.append((key, handle.rpc("kvs.lookup", request)))
        if len(waiting) == AT_ONCE:
            yield waiting.popleft()
    yield from waiting


@task(
    "sync-restored",
    ranks="0",
    after=["restore"],
    before=["kvs"],
    needs=["content-backing"],
    needs_attrs=["content.restore"],
)
def sync_restored(context):
    """Has the database on the disk that flux-core's rc1 makes from a dump: it removes the link to the dump
    at once, and the old database before."""
    statedir = context.attr_get("statedir")
    try:
        for name in ("content.sqlite-wal", "content.sqlite", "."):
            path = os.path.join(statedir, name)
            if os.path.exists(path):
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
    except OSError as error:
        print(f"job-exec-rs: the KVS may not outlive a power cut: {error}", file=sys.stderr)


@task("keep-jobs", ranks="0", after=["job-exec"], before=["push-cleanup"], needs=["job-exec"])
def keep_jobs(context):
    """Has the stop of the instance decide whether it cancels its jobs: push-cleanup of flux-core's rc1
    looks for this variable. Whether shells outlive their broker is not known yet where systemd is slow."""
    if is_of_site(context):
        os.environ["FLUX_DISABLE_JOB_CLEANUP"] = "1"
        command = AT_STOP.format(file=shlex.quote(os.path.abspath(__file__)))
        # What it prints is in the log, and on the terminal of `flux shutdown`.
        context.rpc("runat.push", {"name": "cleanup", "commands": [command]}).get()


def why_canceled(handle):
    """Why jobs are not kept: they do not outlive the stop, or the module that runs will not own their
    processes at the next start of this broker, as the files are now. None: they are."""
    # flux-core's job-exec knows no such thing.
    if not handle.rpc("job-exec.stats-get", {"own": True}).get().get("keeps-jobs", False):
        return "exec.keep-jobs is false, or shells end with their broker"
    listed = handle.rpc("module.list", {}).get()["mods"]
    running = [module["path"] for module in listed if module["name"] in NAMES]
    on_disk = configuration(handle)
    other = on_disk("modules.alternatives.job-exec")
    path = file_of(other) if other else path_of(selected())
    if path not in running:
        return f"nobody would own them, because Flux will load {path}"
    if on_disk("exec.method") == "fork":
        return "nobody would own them, because exec.method is fork"
    return None


def selected():
    """The module that Flux will load for job-exec, without [modules.alternatives]."""
    for line in said_by("flux", "modprobe", "rc1", "--dry-run").splitlines():
        words = line.split()
        if words[0] == "load" and words[1] in NAMES:
            return words[1]
    raise KeyError("flux modprobe rc1 --dry-run names no job-exec")


def path_of(name):
    return file_of(json.loads(said_by("flux", "modprobe", "show", name))["module"])


def file_of(module):
    """Where it is, or its name. (What `flux modprobe show` is asked for can be a service of another.)"""
    directories = os.environ["FLUX_MODULE_PATH"].split(":")
    paths = (os.path.join(directory, f"{module}.so") for directory in directories)
    return next(filter(os.path.exists, paths), module)


def configuration(handle):
    """Looks keys up as they are on the disk: the next start reads that. "": there is no such key."""
    try:
        path = handle.attr_get("config.path")
    except FileNotFoundError:
        return lambda _: ""
    return lambda key: said_by("flux", "config", "get", "-q", "-d", "", "-c", path, key)


def said_by(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@task("units-of-nobody", ranks="all", after=["resource", "job-exec"], needs=["resource"])
def units_of_nobody(context):
    """Drains this node if shells of this instance run here in units, and flux-core's job-exec was loaded in
    place of the module, here or on rank 0. It knows nothing of them, and would give their cores to others.
    Gives the node back if they have an owner again."""
    try:
        if not is_of_site(context):
            return
        if owns_units(context.handle):
            give_back(context.handle)
            return
        units = running_units(context.handle)
        if units:
            reason = f"{OF_NOBODY} {' '.join(units)}"
            print(f"job-exec-rs: draining this node: {reason}", file=sys.stderr)
            drain = {"targets": str(context.rank), "reason": reason, "mode": "update"}
            context.handle.rpc("resource.drain", drain, nodeid=0).get()
            # The instance does not wait for it.
            command = ["flux", "python", __file__, *units]
            quiet = subprocess.DEVNULL
            subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"job-exec-rs: looking for units of nobody: {error}", file=sys.stderr)


@task("release-held", ranks="0", after=["job-exec", "job-info", "job-list"], needs=["job-list"])
def release_held(context):
    """Lets jobs go that the module has held in CLEANUP until it would be back (rfc/0008, [cleanup-held]), if
    flux-core's job-exec was loaded in its place."""
    try:
        if not is_of_site(context) or owns_units(context.handle):
            return
        for job in said_by("flux", "jobs", "-Ano", "{id.dec}", "--filter=cleanup").split():
            with the_others_go_on(f"job {job}"):
                lookup = {"id": int(job), "keys": ["eventlog"], "flags": 0}
                eventlog = context.handle.rpc("job-info.lookup", lookup).get()["eventlog"]
                events = [json.loads(line) for line in eventlog.splitlines()]
                held = [event["name"] for event in events if event.get("context", {}).get("description") == HOLD]
                if held.count("epilog-start") > held.count("epilog-finish"):
                    event = {"name": "epilog-finish", "context": {"description": HOLD, "status": 0}}
                    context.handle.rpc("job-manager.post-event.post", {"id": int(job), **event}).get()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"job-exec-rs: looking for jobs that it holds: {error}", file=sys.stderr)


def end_units(handle, units):
    """Stops units when their jobs have ended. A stop can have canceled jobs whose ranks had stopped before
    they could be told. Gives the node back when none runs here any more."""
    for unit in units:
        if await_end(handle, UNIT.fullmatch(unit).group("job")):
            handle.log(syslog.LOG_WARNING, f"job-exec-rs: stopping {unit}, whose job has ended")
            # systemd may not kill a guest's processes. The IMP does, when it hears this (RFC 15).
            kill = ["kill", "--kill-whom=main", "--signal=SIGUSR1"] if unit.startswith("imp-") else ["stop"]
            for command in (kill, ["stop"], ["reset-failed"]):
                subprocess.run(["systemctl", "--user", *command, unit], check=False)
            # What the kernel has counted for it is kept there. The module is not here to stop it.
            slices = unit.removesuffix(".service").replace("-", "_")
            subprocess.run(["systemctl", "--user", "stop", f"*{slices}_*.slice"], check=False)
    if not running_units(handle):
        give_back(handle)


def give_back(handle):
    """Undrains this node if it was drained for units that nobody owned."""
    rank = handle.get_rank()
    for ranks, drain in handle.rpc("resource.status", nodeid=0).get()["drain"].items():
        if rank in IDset(ranks) and drain["reason"].startswith(OF_NOBODY):
            handle.rpc("resource.undrain", {"targets": str(rank)}, nodeid=0).get()


def await_end(handle, job):
    """Whether the job has come to its end, or is forgotten, and not the broker."""
    if subprocess.run(["flux", "job", "wait-event", "-q", job, "clean"], check=False).returncode == 0:
        return True
    try:
        handle.rpc("job-info.lookup", {"id": int(JobID(job)), "keys": ["eventlog"], "flags": 0}).get()
    except FileNotFoundError:
        return True
    return False


def owns_units(handle):
    """Whether this broker's job-exec is the module, which has something to say of its launcher, and rank 0's
    is, which has the jobs."""
    listed = handle.rpc("module.list", {}).get()["mods"]
    if not any(module["name"] in NAMES for module in listed):
        return False
    ranks = {handle.get_rank(), 0}
    return all("launcher" in handle.rpc("job-exec.stats-get", {"own": True}, nodeid=rank).get() for rank in ranks)


def running_units(handle):
    """Units of shells of this broker, by its socket, with processes in them."""
    socket = handle.attr_get("local-uri").removeprefix("local://")
    manager = ["systemctl", "--user"]
    listed = said_by(*manager, "list-units", "--plain", "--no-legend", "--state=running", *SHELLS)
    # Somebody else's can have such a name.
    units = [unit for unit in (line.split()[0] for line in listed.splitlines()) if UNIT.fullmatch(unit)]
    uri = re.compile(rf"FLUX_URI=\w+://{re.escape(socket)}(\?|\s|$)", re.M)
    return [unit for unit in units if uri.search(said_by(*manager, "show", "-PEnvironment", unit))]


@task("linger", before=["job-exec"], needs=["job-exec"])
def linger(context):
    """Has the units of the instance owner live without a login, as flux.service does. The module
    warns where it does not work, and where the broker is no service of the system."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as cgroups:
            is_service = ":/system.slice/" in cgroups.read()
        if not is_service or context.attr_get("broker.boot-method") != "config":
            return
        user = pwd.getpwuid(os.getuid()).pw_name
        if os.path.isdir(LINGERING) and not os.path.exists(os.path.join(LINGERING, user)):
            subprocess.run(["loginctl", "enable-linger"], check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"job-exec-rs: loginctl enable-linger: {error}", file=sys.stderr)


@task("remove-directories", before=["job-exec"], needs=["job-exec"])
def remove_directories(context):
    """Removes directories of jobs (FLUX_JOB_TMPDIR) whose shells have been killed. A shell that ends
    removes its own. The run directory stays when the broker stops, for those that go on."""
    try:
        if is_of_site(context):
            rundir = context.attr_get("rundir")
            for name in directories_of_none(rundir, set(arguments_of_processes())):
                shutil.rmtree(os.path.join(rundir, name))
    except OSError as error:
        print(f"job-exec-rs: removing directories of jobs that have ended: {error}", file=sys.stderr)


def is_of_site(context):
    """The broker is no part of a job, and shares its run directory with no other."""
    return context.attr_get("broker.boot-method") == "config" and not context.attr_get("jobid")


def directories_of_none(rundir, arguments):
    """Those of jobs without a shell: its last argument is the job's id."""
    for name in os.listdir(rundir):
        found = JOB_DIRECTORY.fullmatch(name)
        if found and str(JobID(found.group(1)).dec) not in arguments:
            yield name


def arguments_of_processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                yield from file.read().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended


@task(
    "drain-degraded",
    ranks="0",
    after=["resource"],
    needs=["resource"],
    needs_attrs=["parent-uri", "jobid", "broker.mapping"],
)
def drain_degraded(context):
    """Drains the nodes of this instance of which its job's eventlog says that they are degraded.

    The prolog of the job has marked them, and the user of the job has said that it bears them. The
    eventlog tells before the job's shells are started."""
    try:
        get = context.handle.attr_get
        reasons = degraded_shells(flux.Flux(get("parent-uri")), JobID(get("jobid")))
        shells = shells_of_brokers(json.loads(get("broker.mapping")))
        for rank, shell in enumerate(shells):
            if shell in reasons:
                drain = {"targets": str(rank), "reason": reasons[shell], "mode": "update"}
                context.handle.rpc("resource.drain", drain, nodeid=0).get()
    except (OSError, ValueError, KeyError) as error:
        # The instance is better off with them than down.
        print(f"job-exec-rs: draining degraded nodes: {error}", file=sys.stderr)


def degraded_shells(parent, jobid):
    """What is wrong, by shell rank."""
    eventlog = flux.job.job_kvs_lookup(parent, jobid, keys=["eventlog"], decode=False)["eventlog"]
    reasons = {}
    for line in eventlog.splitlines():
        event = json.loads(line)
        if event["name"] == "node-degraded":
            nodes = event["context"]
            for shell, reason in zip(IDset(nodes["shell_ranks"]), nodes["reasons"]):
                reasons[shell] = reason
    return reasons


def shells_of_brokers(mapping):
    """The shell rank of each broker: RFC 34, [[first shell, shells, brokers of each, times], ...]."""
    for first, count, each, times in mapping:
        for _ in range(times):
            for shell in range(first, first + count):
                yield from [shell] * each


def jobs(handle):
    """Keys of all jobs: RFC 16, job.XXXX.XXXX.XXXX.XXXX."""
    keys = ["job"]
    for _ in range(4):
        found = []
        for key, answer in ask(handle, keys, FLUX_KVS_READDIR):
            with contextlib.suppress(FileNotFoundError):
                names = answer.get()["val"]["data"].items()
                found += [f"{key}.{name}" for name, entry in names if entry["type"] in DIRECTORIES]
        keys = found
    return keys


def decide_at_stop():
    """Exits with 0 if jobs are kept."""
    try:
        why = why_canceled(flux.Flux())
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        print(f"job-exec-rs: whether jobs are kept at this stop: {error}", file=sys.stderr)
        why = None
    print(f"jobs that run are not kept: {why}" if why else KEPT)
    sys.exit(1 if why else 0)


if __name__ == "__main__":
    if sys.argv[1:]:
        handle = flux.Flux()
        try:
            end_units(handle, sys.argv[1:])
        except (OSError, subprocess.SubprocessError) as error:
            handle.log(syslog.LOG_ERR, f"job-exec-rs: ending {' '.join(sys.argv[1:])}: {error}")
    else:
        decide_at_stop()
