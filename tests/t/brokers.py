"""Brokers of a small instance that can be killed and started again, one by one, on the same
run and state directories."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading

import flux


class Brokers:
    """As a system instance has them: each finds the others by configuration, not by PMI.

    With as_service, brokers also have what flux-core's etc/flux.service.in gives them: a state
    directory each, which systemd names in the environment, and a run directory that is gone when
    the service has stopped."""

    def __init__(self, size, settings=(), as_service=False, cores=128):
        self.as_service = as_service
        self.top = tempfile.mkdtemp(prefix="brokers-", dir=os.environ.get("TMPDIR", "/tmp"))
        self.size = size
        self.settings = list(settings)
        self.processes = {}
        hosts = f"fake[0-{size - 1}]" if size > 1 else "fake0"
        ranks = f"0-{size - 1}" if size > 1 else "0"
        for name in ("conf.d", "state"):
            os.mkdir(self.path(name))
        self.run("keygen", "--name", "test", self.path("cert"))
        resources = self.run("R", "encode", f"--hosts={hosts}", f"-r{ranks}", f"-c0-{cores - 1}")
        self.write("R", resources)
        self.write(
            "conf.d/instance.toml",
            f"""
[bootstrap]
curve_cert = "{self.path('cert')}"
default_bind = "ipc://{self.top}/tbon-%h"
default_connect = "ipc://{self.top}/tbon-%h"
hosts = [ {{ host = "{hosts}" }} ]
[resource]
path = "{self.path('R')}"
noverify = true
""",
        )

    def __enter__(self):
        self.start()
        self.await_run()
        return self

    def __exit__(self, *error):
        self.stop()

    def path(self, name):
        return os.path.join(self.top, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    @staticmethod
    def run(*command):
        return subprocess.run(("flux",) + command, check=True, capture_output=True, text=True).stdout

    def socket(self, rank):
        return self.path(f"run-{rank}/local")

    def uri(self, rank, scheme="local"):
        return f"{scheme}://{self.socket(rank)}"

    def start(self, *ranks):
        """Starts brokers, and does not wait for them."""
        for rank in ranks or range(self.size):
            rundir = self.path(f"run-{rank}")
            os.makedirs(rundir, exist_ok=True)
            command = ["flux", "broker", f"-c{self.path('conf.d')}", f"-Srundir={rundir}"]
            command += [f"-Slocal-uri={self.uri(rank)}", f"-Sbroker.quorum={self.size}"]
            command += ["-Stbon.topo=custom", "-Sbroker.rc2_none=1", f"-Shostname=fake{rank}"]
            command += [f"-S{setting}" for setting in self.settings]
            environment = dict(os.environ)
            state = self.path("state")
            if self.as_service:
                # Followers' brokers forget the attribute.
                state = environment["STATE_DIRECTORY"] = self.path(f"state-{rank}")
                os.makedirs(state, exist_ok=True)
            if rank == 0 or self.as_service:
                command += [f"-Sstatedir={state}"]
            if rank == 0:
                command += [f"-Slog-filename={self.path('log')}"]
            for name in ("FLUX_URI", "NOTIFY_SOCKET"):
                environment.pop(name, None)
            with open(self.path(f"out-{rank}"), "ab") as out:
                self.processes[rank] = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )

    def await_run(self, *ranks):
        """Waits until brokers are in RUN."""
        for rank in ranks or range(self.size):
            while True:
                try:
                    flux.Flux(self.uri(rank)).rpc("state-machine.wait").get()
                    break
                except OSError:
                    if self.processes[rank].poll() is not None:
                        raise RuntimeError(f"broker {rank} has ended: see {self.top}")

    def flux(self, *command, rank=0):
        """Runs a flux command on a rank, and returns what it prints."""
        environment = dict(os.environ, FLUX_URI=self.uri(rank))
        run = subprocess.run(("flux",) + command, check=True, capture_output=True, env=environment)
        return run.stdout.decode()

    def checkpoint(self, namespace):
        """Puts a reference to a namespace into the primary one, and has it made durable."""
        handle = flux.Flux(self.uri(0))
        root = handle.rpc("kvs.getroot", {"namespace": namespace}).get()["rootref"]
        treeobj = json.dumps({"ver": 1, "type": "dirref", "data": [root]})
        self.flux("kvs", "put", "--sync", "--treeobj", f"checkpoint.{namespace}={treeobj}")

    def restore(self, namespace):
        """Makes a namespace again as its last checkpoint has it."""
        treeobj = json.loads(self.flux("kvs", "get", "--treeobj", f"checkpoint.{namespace}"))
        root = treeobj["data"][0]
        self.flux("kvs", "namespace", "create", f"--rootref={root}", namespace)

    def kill(self, *ranks):
        """SIGKILL, as if the node's memory had run out."""
        for rank in ranks or range(self.size):
            process = self.processes.pop(rank)
            process.kill()
            process.wait()
            self.remove_rundir(rank)

    def remove_rundir(self, rank):
        """As systemd does when a service has stopped (RuntimeDirectory=)."""
        if self.as_service:
            shutil.rmtree(self.path(f"run-{rank}"))

    def await_end(self, *ranks):
        """Waits for brokers that end by themselves: those whose parent is gone."""
        for rank in ranks:
            self.processes.pop(rank).wait()
            self.remove_rundir(rank)

    def stop(self):
        """Ends the instance in order; if that takes too long, without."""
        for rank in sorted(self.processes):
            self.processes[rank].send_signal(signal.SIGTERM)
            break
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for rank in list(self.processes):
            self.processes.pop(rank)
            self.remove_rundir(rank)


def pause(seconds):
    """Lets a broker be away for so long."""
    threading.Event().wait(seconds)
