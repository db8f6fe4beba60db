"""Booted nodes on one machine: guests of user-mode Linux, each with its own systemd as process 1, on a
network of their own."""

import concurrent.futures
import ctypes
import fcntl
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# What a node finds in the directory that it shares with the test.
SHARED = ("guest/setup", "guest/agent", "guest/probe.py", "../chaos/task.py")
MEMORY = "768M"
PR_SET_PDEATHSIG = 1
# How long a node may take to boot on a machine that is busy.
BOOT_S = 120
# Between two looks for what a guest has written.
LOOK_S = 0.05


class NodeDown(OSError):
    """It has no power, or lost it before it answered."""


class Answer:
    """What a command on a node has come to."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


def end_with_us():
    """A guest does not outlive the test."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Network:
    """A hub: what a guest sends goes to all others, unless they are parted or the frame is lost."""

    def __init__(self, count, directory):
        self.links = {}
        # Pairs that do not reach each other, with how often this was asked for.
        self.parted = {}
        # Of each node, which part of the frames from and to it is lost.
        self.loss = dict.fromkeys(range(count), 0.0)
        self.draw = random.Random(0)
        for node in range(count):
            port = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            port.bind(self.path(directory, node))
            port.listen()
            threading.Thread(target=self.serve, args=(node, port), daemon=True).start()

    @staticmethod
    def path(directory, node):
        return f"{directory}/port-{node}"

    def serve(self, node, port):
        """A guest connects each time it boots."""
        while True:
            link, _ = port.accept()
            self.links[node] = link
            while frame := self.receive(link):
                for other, target in list(self.links.items()):
                    if other != node and self.passes(node, other):
                        self.send(target, frame)
            self.links.pop(node, None)

    @staticmethod
    def receive(link):
        try:
            return link.recv(1 << 16)
        except OSError:
            return b""

    @staticmethod
    def send(link, frame):
        try:
            link.send(frame, socket.MSG_DONTWAIT)
        except OSError:
            pass  # It is down, or its queue is full: networks lose frames.

    def passes(self, one, other):
        if self.parted.get(frozenset((one, other)), 0) > 0:
            return False
        return self.draw.random() >= max(self.loss[one], self.loss[other])

    def part(self, node, others, more=1):
        """Has the node reach those no more; with -1 it reaches them again."""
        for other in others:
            pair = frozenset((node, other))
            self.parted[pair] = self.parted.get(pair, 0) + more


class Nodes:
    """Guests n0, n1, ... with addresses 10.99.0.1, ... `image` is what tests/nodes/image has made."""

    def __init__(self, count, image, top):
        self.count, self.image, self.top = count, image, top
        self.share = os.path.join(top, "share")
        self.guests = {}
        self.numbers = itertools.count()
        # Guests end with the thread that has started them.
        self.starter = concurrent.futures.ThreadPoolExecutor(1)
        os.makedirs(self.share)
        for name in SHARED:
            shutil.copy(os.path.join(HERE, name), self.share)
        with open(f"{self.share}/hosts", "w", encoding="utf-8") as hosts:
            hosts.write("127.0.0.1 localhost\n")
            hosts.writelines(f"10.99.0.{node + 1} n{node}\n" for node in range(count))
        self.network = Network(count, top)
        # So that nobody removes the image under us.
        self.lock = os.open(image, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.lock, fcntl.LOCK_SH)

    def place(self, node):
        return os.path.join(self.share, f"n{node}")

    def is_up(self, node):
        guest = self.guests.get(node)
        return guest is not None and guest.poll() is None

    def boot(self, *nodes):
        for node in nodes:
            shutil.rmtree(self.place(node), ignore_errors=True)
            os.makedirs(self.place(node))
            self.guests[node] = self.starter.submit(self.start, node).result()

    def start(self, node):
        with open(f"{self.top}/console-{node}", "ab") as console:
            return subprocess.Popen(
                [f"{self.image}/uml", *self.command_line(node)],
                env={"PATH": os.environ["PATH"], "HOME": self.top},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                preexec_fn=end_with_us,
            )

    def command_line(self, node):
        return [
            f"mem={MEMORY}",
            f"umid=node{node}",
            f"uml_dir={self.top}",
            f"ubd0={self.top}/disk-{node},{self.image}/disk.img",
            "root=/dev/ubda",
            "rw",
            "init=/lib/systemd/systemd",
            "con=null",
            "con0=null,fd:1",
            "quiet",
            # Faster, and only for guests that one trusts.
            "seccomp=auto",
            f"vec0:transport=bess,dst={Network.path(self.top, node)}",
            f"systemd.hostname=n{node}",
            f"systemd.machine_id={node + 1:032x}",
            f"node={node}",
            f"share={self.share}",
        ]

    def await_boot(self, *nodes):
        until = time.monotonic() + BOOT_S
        for node in nodes:
            while not os.path.exists(f"{self.place(node)}/up"):
                if not self.is_up(node) or time.monotonic() > until:
                    raise NodeDown(f"n{node} does not boot, see console-{node}")
                threading.Event().wait(LOOK_S)

    def cut_power(self, *nodes):
        """What the guest has not handed to its disk is lost."""
        for node in nodes:
            guest = self.guests.pop(node, None)
            if guest:
                os.killpg(guest.pid, signal.SIGKILL)
                guest.wait()

    def run(self, node, command, limit=120):
        """Runs a command of bash on a node, as root. Raises NodeDown if it lost its power first."""
        guest = self.guests.get(node)
        if not guest:
            raise NodeDown(f"n{node} is down")
        name = f"{self.place(node)}/{next(self.numbers):06d}"
        until = time.monotonic() + limit
        with open(f"{name}.new", "w", encoding="utf-8") as file:
            file.write(command)
        os.rename(f"{name}.new", f"{name}.command")
        while not os.path.exists(f"{name}.status"):
            if guest is not self.guests.get(node) or guest.poll() is not None:
                raise NodeDown(f"n{node} lost its power")
            if time.monotonic() > until:
                raise NodeDown(f"n{node} does not answer within {limit} s: {command[:120]}")
            threading.Event().wait(LOOK_S)
        said = {kind: self.read(f"{name}.{kind}") for kind in ("status", "out", "err")}
        for kind in ("status", "out", "err", "running"):
            os.unlink(f"{name}.{kind}")
        return Answer(int(said["status"]), said["out"], said["err"])

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def close(self):
        self.cut_power(*list(self.guests))
        self.starter.shutdown()
        os.close(self.lock)
