"""usage: ride-rank0.py KILLS LINES

Three clients append numbered lines to a namespace while all brokers, rank 0's among them, are
killed so many times. The namespace is made again from its last checkpoint, as job-exec-rs does
with guest namespaces."""

import os
import random
import subprocess
import sys

from brokers import Brokers, pause

KILLS, LINES = int(sys.argv[1]), int(sys.argv[2])
NAMESPACE = "ride"
# On which rank a client is.
CLIENTS = {"a": 0, "b": 0, "c": 1}


def lines(brokers):
    # The command adds a newline of its own.
    return brokers.flux("kvs", "get", "-N", NAMESPACE, "log").split("\n")[:-2]


def start_client(brokers, name, rank):
    here = os.path.dirname(os.path.abspath(__file__))
    command = ["flux", "python", f"{here}/ride-writer.py", brokers.uri(rank, "resume")]
    command += [NAMESPACE, name, str(LINES // len(CLIENTS))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ride(brokers):
    brokers.flux("kvs", "namespace", "create", NAMESPACE)
    brokers.checkpoint(NAMESPACE)
    clients = [start_client(brokers, name, rank) for name, rank in CLIENTS.items()]
    # The first checkpoint has to hold lines, however slowly the clients start.
    brokers.flux("kvs", "get", "-N", NAMESPACE, "--waitcreate", "--watch", "--count=1", "log")
    lost = 0
    for number in range(KILLS):
        # Clients write before and after the checkpoint.
        pause(random.uniform(0.1, 0.4))
        brokers.checkpoint(NAMESPACE)
        pause(random.uniform(0, 0.3))
        before = len(lines(brokers))
        brokers.kill()
        brokers.start()
        brokers.await_run()
        pause(random.uniform(0, 0.2))
        brokers.restore(NAMESPACE)
        lost += max(0, before - len(lines(brokers)))
    said = [client.stdout.readline().strip() for client in clients]
    for client in clients:
        client.stdin.close()
        assert client.wait() == 0, client.returncode
    return said, lines(brokers), lost


def check(said, written, lost):
    assert all(": 0 failures" in line for line in said), said
    for name in CLIENTS:
        numbers = [int(line.split()[1]) for line in written if line.split()[0] == name]
        expected = list(range(LINES // len(CLIENTS)))
        wrong = [pair for pair in zip(numbers, expected) if pair[0] != pair[1]]
        assert numbers == expected, f"{name}: {len(numbers)} lines, wrong at {wrong[:24]}"
    assert KILLS == 0 or lost > 0, "nothing was rolled back: nothing was tested"
    print(f"{KILLS} kills: {len(written)} lines, at least {lost} of them lost and written again")


with Brokers(2) as brokers:
    check(*ride(brokers))
