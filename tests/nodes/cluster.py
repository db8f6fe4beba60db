"""Flux on booted nodes, as a site has it: the unit that flux-core installs, the IMP, and guests. To the
account it looks as the instance of tests/chaos does."""

import concurrent.futures
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time

from instance import pause, run
from machine import NodeDown, Nodes

# Whose jobs there are. alice has a systemd of her own, bob has none.
OWNER, GUESTS = "flux", ("alice", "bob")
USERS = (OWNER, *GUESTS)
# More than a node has, so that jobs wait seldom: nobody looks (noverify).
CORES = 16
# What the owner had to set by hand, to try what else is wrong.
BY_HAND_ENVIRONMENT = "[Service]\nEnvironment=FLUX_DISABLE_JOB_CLEANUP=1\n"
BY_HAND_CONFIGURATION = '[kvs]\ncheckpoint-period = "10s"\n[content-sqlite]\nsynchronous = "FULL"\n'
URI = "local:///run/flux/local"
# `flux uptime` fails on a node whose clock went back: it can't print how long it is up.
PRINT_STATE = "import flux; print(flux.Flux().rpc('state-machine.get').get()['state'])"
# What a node says of its broker is everybody's answer for this long.
FRESH_S = 1
# A clock that a test has set is off by more than a run takes.
CLOCK_JUMP_S = 3600


def configuration(count, prefix, peer_timeout):
    return f"""
[bootstrap]
curve_cert = "{prefix}/etc/flux/system/cert"
default_port = 8050
default_bind = "tcp://vec0:%p"
default_connect = "tcp://%h:%p"
hosts = [ {{ host = "n[0-{count - 1}]" }} ]
[resource]
path = "{prefix}/etc/flux/system/R"
noverify = true
[exec]
imp = "{prefix}/libexec/flux/flux-imp"
# The nodes are slow, and a shell ends long after another.
shell-exit-timeout = "280s"
{f'peer-timeout = "{peer_timeout}s"' if peer_timeout else ''}
[access]
allow-guest-user = true
"""

START_IF_ENDED = "[ $(systemctl is-active flux) != inactive ] || systemctl start flux"


class Cluster:
    """The instance on all nodes. Commands run in a node, as the instance's owner or as a guest."""

    has_scripts = False

    def __init__(self, count, image, top, peer_timeout=None, by_hand=False):
        self.count, self.top = count, top
        self.tag = f"nodes-{os.getpid()}"
        self.asking = [threading.Lock() for _ in range(count)]
        self.told = [(0, "")] * count
        self.nodes = Nodes(count, image, top)
        prefix = os.path.dirname(os.path.dirname(run("sh", "-c", "command -v flux").stdout.strip()))
        self.prefix = prefix
        os.makedirs(self.path("jobs"))
        self.write("nodes.toml", configuration(count, prefix, peer_timeout))
        run("flux", "keygen", "--name", "nodes", self.path("cert"))
        hosts = f"--hosts=n[0-{count - 1}]"
        ranks = f"-r0-{count - 1}"
        self.write("R", run("flux", "R", "encode", hosts, ranks, f"-c0-{CORES - 1}").stdout)
        if by_hand:
            self.write("environment", BY_HAND_ENVIRONMENT)
            self.write("by-hand.toml", BY_HAND_CONFIGURATION)

    def path(self, *names):
        """In what all nodes and the test share, under the same name everywhere."""
        return os.path.join(self.nodes.share, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    @property
    def ranks(self):
        return range(self.count)

    def start(self):
        self.nodes.boot(*self.ranks)
        self.nodes.await_boot(*self.ranks)
        self.await_all()

    def as_user(self, user, command, rank=0, limit=120, **more):
        """Runs a command, a list, on a node. Raises NodeDown."""
        environment = {"FLUX_URI": URI, "HOME": "/tmp", "PATH": f"{self.prefix}/bin:/usr/bin:/bin"}
        settings = [f"{name}={value}" for name, value in {**environment, **more}.items()]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        line = shlex.join([*become, "env", *settings, *command])
        return self.nodes.run(rank, f"cd / && {line}", limit)

    def flux(self, *command, check=True, rank=0, limit=120):
        """What a flux command of the owner prints."""
        done = self.as_user(OWNER, ["flux", *command], rank, limit)
        if check and done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        return done.stdout

    def state(self, rank):
        """Of its broker, or why that says nothing. Forty jobs may wait for a broker: a node
        that starts it is not asked by all of them."""
        with self.asking[rank]:
            at, said = self.told[rank]
            if time.monotonic() - at > FRESH_S:
                try:
                    done = self.as_user(OWNER, ["flux", "python", "-c", PRINT_STATE], rank, limit=20)
                    said = f"{done.stdout} {done.stderr}".strip()
                except OSError as error:
                    said = str(error)
                self.told[rank] = time.monotonic(), said
            return said

    def await_run(self, rank, patience=180):
        """Raises NodeDown. What a site's staff does, too: a broker whose rc1 fails, because it is
        parted meanwhile, ends with broker.exit-norestart, and systemd leaves it so (flux-core
        `broker/state_machine.c`)."""
        began, was_started = time.monotonic(), False
        while (seen := self.state(rank)) != "run":
            waited = time.monotonic() - began
            if waited > patience:
                raise NodeDown(f"no broker of rank {rank} is in RUN: {seen}")
            if waited > patience / 2 and not was_started:
                with contextlib.suppress(NodeDown):
                    self.nodes.run(rank, START_IF_ENDED)
                    was_started = True
            pause(1)

    def await_all(self):
        for rank in self.ranks:
            self.await_run(rank)
        self.flux("overlay", "status", "--wait=full", "--timeout=60")

    def each(self, work, ranks=None):
        """For each rank at once."""
        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(work, self.ranks if ranks is None else ranks))

    def probe(self, rank):
        command = ["/usr/bin/python3", "-I", self.path("probe.py"), *USERS]
        done = self.nodes.run(rank, shlex.join(command))
        if done.returncode != 0:
            raise NodeDown(f"n{rank}: {done.stderr}")
        return json.loads(done.stdout)

    def log(self, rank):
        """What its journal has, of all boots: (time, text)."""
        with open(self.path(f"log-{rank}"), encoding="utf-8", errors="replace") as file:
            for line in file:
                then, _, text = line.partition(" ")
                if re.fullmatch(r"\d+\.\d+", then):
                    yield self.true_time(float(then)), text.rstrip("\n")

    def logged(self, *words):
        """When one had a line with all of these."""
        for rank in self.ranks:
            yield from (then for then, text in self.log(rank) if all(w in text for w in words))

    @staticmethod
    def true_time(then):
        """Of what a node says whose clock was set."""
        off = round((then - time.time()) / CLOCK_JUMP_S)
        return then - off * CLOCK_JUMP_S

    def stop(self):
        self.nodes.close()
