"""An instance of four brokers, each a service of the user's systemd with the habits of flux-core's
etc/flux.service.in, and with the drop-in that `install` writes for it: a run directory and a state
directory that stay, and a restart whenever it has ended."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import flux
import scripts

SIZE = 4
HERE = os.path.dirname(os.path.abspath(__file__))
DROP_IN = os.path.join(HERE, "../../command/src/flux.service.conf")
# Of the overlay network, by kary:2.
PARENT = {1: 0, 2: 0, 3: 1}
CORES = 128
# What a broker needs of this process's environment.
PASSED_ON = ("PATH", "HOME", "TMPDIR", "JOB_EXEC_RS_RUN")
# A disk for records and output of one rank.
DISK = "64m"


def run(*command, check=True, **more):
    return subprocess.run(command, check=check, capture_output=True, text=True, **more)


def dropped_in():
    """What `install` sets for flux.service."""
    with open(DROP_IN, encoding="utf-8") as file:
        lines = [line.strip() for line in file if "=" in line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines)


def systemctl(*arguments, check=True):
    return run("systemctl", "--user", *arguments, check=check).stdout


def job_units():
    """Name and state of each unit that could be a shell's, or a script's."""
    kinds = ("*shell-*", "*prolog-*", "*epilog-*")
    listed = systemctl("list-units", "--all", "--plain", "--no-legend", *kinds)
    return {line.split()[0]: " ".join(line.split()) for line in listed.splitlines()}


class Instance:
    def __init__(self, top, peer_timeout, restart_after=0.1, script=None):
        """`script`: its prologs and epilogs, if there are any."""
        self.top, self.has_scripts = top, script is not None
        self.peer_timeout, self.restart_after = peer_timeout, restart_after
        self.tag = f"chaos-{os.getpid()}-{os.path.basename(top)}"
        self.held = {rank: 0 for rank in range(SIZE)}
        self.gates = {}
        self.lock = threading.Lock()
        # Nobody else's (tests/user-systemd): its bus may be restarted, and disks be mounted.
        self.is_private = "USER_SYSTEMD_CGROUP" in os.environ and os.getuid() == 0
        self.strangers = job_units()
        os.makedirs(self.path("conf.d"))
        run("flux", "keygen", "--name", "test", self.path("cert"))
        hosts = f"--hosts=fake[0-{SIZE - 1}]"
        self.write("R", run("flux", "R", "encode", hosts, f"-r0-{SIZE - 1}", "-c0-127").stdout)
        self.write("conf.d/instance.toml", self.configuration())
        if script:
            self.write("conf.d/scripts.toml", scripts.configuration(self, script))
        self.write("environment", self.environment())
        for rank in range(SIZE):
            self.make_disk(rank)
            self.gates[rank] = open(self.path(f"gate-{rank}"), "w", encoding="utf-8")

    def configuration(self):
        return f"""
[bootstrap]
curve_cert = "{self.path('cert')}"
default_bind = "ipc://{self.top}/tbon-%h"
default_connect = "ipc://{self.top}/tbon-%h"
hosts = [ {{ host = "fake[0-{SIZE - 1}]" }} ]
[resource]
path = "{self.path('R')}"
noverify = true
[exec]
peer-timeout = "{self.peer_timeout}s"
"""

    def logged(self, *words):
        """When a broker has logged a line with all of these, in seconds since the epoch."""
        for rank in range(SIZE):
            with open(self.path(f"log-{rank}"), encoding="utf-8") as log:
                for line in log:
                    if all(word in line for word in words):
                        yield float(line.split()[0])

    @staticmethod
    def environment():
        names = [name for name in os.environ if name in PASSED_ON or name.startswith("FLUX_")]
        values = {name: os.environ[name] for name in names}
        return "".join(f'{name}="{value}"\n' for name, value in values.items())

    def path(self, *names):
        return os.path.join(self.top, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def unit(self, rank):
        return f"{self.tag}-{rank}.service"

    def rundir(self, rank):
        runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        return f"{runtime}/{self.tag}-{rank}"

    def socket(self, rank):
        return f"{self.rundir(rank)}/local"

    def uri(self, rank, scheme="local"):
        return f"{scheme}://{self.socket(rank)}"

    def records(self, rank):
        return self.path(f"state-{rank}/job-exec")

    def make_disk(self, rank):
        os.makedirs(self.records(rank), mode=0o700)
        if self.is_private:
            run("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "none", self.records(rank))

    def start(self):
        for rank in range(SIZE):
            self.start_broker(rank)
        self.await_all()

    def start_broker(self, rank):
        state = self.path(f"state-{rank}")
        log = self.path(f"log-{rank}.pipe")
        os.mkfifo(log)
        threading.Thread(target=stamp, args=(log, self.path(f"log-{rank}")), daemon=True).start()
        properties = {
            "Type": "notify",
            "NotifyAccess": "main",
            "KillMode": "mixed",
            "TimeoutStartSec": "infinity",
            "TimeoutStopSec": "90",
            "Restart": "always",
            "RestartSec": f"{self.restart_after}s",
            "StartLimitIntervalSec": "0",
            "RuntimeDirectory": f"{self.tag}-{rank}",
            **dropped_in(),
            "Delegate": "yes",
            "EnvironmentFile": self.path("environment"),
            "StandardOutput": f"append:{log}",
            "StandardError": f"append:{log}",
            # A broker that is to be away waits here.
            "ExecStartPre": f"/usr/bin/flock -s {self.path(f'gate-{rank}')} /bin/true",
        }
        command = ["systemd-run", "--user", "--quiet", "--no-block", f"--unit={self.unit(rank)}"]
        command += [f"--property={name}={value}" for name, value in properties.items()]
        command += [f"--setenv=STATE_DIRECTORY={state}"]
        attributes = {
            "rundir": self.rundir(rank),
            "statedir": state,
            "local-uri": self.uri(rank),
            "hostname": f"fake{rank}",
            "tbon.topo": "kary:2",
            "log-stderr-level": "7",
            "log-forward-level": "-1",
            "log-stderr-mode": "local",
            "broker.rc2_none": "1",
            "broker.quorum": "1",
            "broker.quorum-warn": "none",
            "broker.cleanup-timeout": "45",
            "broker.shutdown-timeout": "5m",
            "broker.exit-norestart": "42",
            "broker.sd-notify": "1",
            "broker.sd-stop-timeout": "90",
            "broker.module-nopanic": "1",
            "content.dump": "auto",
            "content.restore": "auto",
        }
        command += [flux_path(), "broker", f"-c{self.path('conf.d')}"]
        command += [f"-S{name}={value}" for name, value in attributes.items()]
        run(*command)

    def pid(self, rank):
        """Of the broker; 0 while there is none."""
        shown = systemctl("show", "--property=MainPID,SubState", self.unit(rank), check=False)
        return int(shown.split("MainPID=")[1].split()[0]) if "MainPID=" in shown else 0

    def signal(self, ranks, number):
        """To all of them at once, as far as that is possible. Which got it."""
        pids = {rank: self.pid(rank) for rank in ranks}
        now = time.time()
        reached = []
        for rank, pid in pids.items():
            try:
                if pid > 0:
                    os.kill(pid, number)
                    reached.append((rank, pid))
            except ProcessLookupError:
                pass
        return now, reached

    def hold(self, ranks):
        """Keeps brokers that end from coming back."""
        with self.lock:
            for rank in ranks:
                self.held[rank] += 1
                if self.held[rank] == 1:
                    # Waits while a broker that is starting passes its gate.
                    fcntl.flock(self.gates[rank], fcntl.LOCK_EX)

    def let_go(self, ranks):
        with self.lock:
            for rank in ranks:
                self.held[rank] -= 1
                if self.held[rank] == 0:
                    fcntl.flock(self.gates[rank], fcntl.LOCK_UN)

    def await_run(self, rank, patience=120):
        """A handle of a broker that is in RUN."""
        until = time.monotonic() + patience
        while True:
            try:
                handle = flux.Flux(self.uri(rank))
                handle.rpc("state-machine.wait").get()
                return handle
            except OSError:
                if time.monotonic() > until:
                    raise
                # No event tells when the socket is there.
                pause(0.1)

    def await_all(self):
        for rank in range(SIZE):
            self.await_run(rank)
        self.flux("overlay", "status", "--wait=full", "--timeout=60")

    def flux(self, *command, check=True, rank=0, **more):
        """Runs a flux command, and returns what it prints."""
        environment = dict(os.environ, FLUX_URI=self.uri(rank), **more)
        return run("flux", *command, check=check, env=environment).stdout

    def stop(self):
        """An administrator's stop of all of them."""
        units = [self.unit(rank) for rank in range(SIZE)]
        pids = self.signal(range(SIZE), signal.SIGCONT)
        systemctl("stop", *units, check=False)
        systemctl("reset-failed", *units, check=False)
        for rank in range(SIZE):
            shutil.rmtree(self.rundir(rank), ignore_errors=True)
        for gate in self.gates.values():
            gate.close()
        return pids

    def unmount(self):
        for rank in range(SIZE):
            if self.is_private:
                run("umount", "-l", self.records(rank))


@contextlib.contextmanager
def started(peer_timeout, script=None):
    """An instance in a directory of its own, which goes with it."""
    top = tempfile.mkdtemp(prefix="chaos-", dir=os.environ.get("TMPDIR", "/tmp"))
    instance = Instance(top, peer_timeout, script=script)
    try:
        instance.start()
        yield instance
    finally:
        instance.stop()
        instance.unmount()
        shutil.rmtree(top, ignore_errors=True)


def stamp(pipe, path):
    """Copies what brokers log, with the time, which they do not write themselves."""
    # Also for writing, so that it does not end with a broker.
    source = os.open(pipe, os.O_RDWR)
    with os.fdopen(source, "rb") as lines, open(path, "w", encoding="utf-8") as log:
        for line in lines:
            log.write(f"{time.time():.3f} {line.decode(errors='replace')}")
            log.flush()


def flux_path():
    return run("sh", "-c", "command -v flux").stdout.strip()


def pause(seconds):
    """Of a fault, or between two looks where no event tells."""
    threading.Event().wait(seconds)
