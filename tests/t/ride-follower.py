"""usage: ride-follower.py KILLS AWAY

Kills the broker of a client so many times, each time for up to AWAY seconds, and looks at what
the client has been given."""

import json
import os
import random
import subprocess
import sys

import flux
import flux.job
import flux.kvs
from brokers import Brokers, pause

KILLS, AWAY = int(sys.argv[1]), float(sys.argv[2])
# What is appended in each round, to the job's eventlog and to a key.
BURST = 5


class Writer:
    """Another client, whose broker stays."""

    def __init__(self, brokers):
        self.handle = flux.Flux(brokers.uri(0))
        self.memos = 0
        self.appends = []
        flux.kvs.put(self.handle, "known", 1)
        flux.kvs.commit(self.handle)
        self.jobid = self.submit()

    def submit(self):
        spec = flux.job.JobspecV1.from_command(["sleep", "inf"])
        spec.environment = dict(os.environ)
        jobid = flux.job.submit(self.handle, spec)
        flux.job.event_wait(self.handle, jobid, "start")
        return jobid

    def write(self):
        for _ in range(BURST):
            self.memos += 1
            payload = {"id": self.jobid, "memo": {"n": self.memos}, "volatile": False}
            self.handle.rpc("job-manager.memo", payload).get()
            text = f"{len(self.appends)}\n"
            self.appends.append(text)
            subprocess.run(
                ["flux", "kvs", "put", "--append", f"log={text}"],
                check=True,
                env=dict(os.environ, FLUX_URI=self.uri),
            )

    def ask(self, number):
        """Until the client's service answers."""
        while True:
            try:
                answer = self.handle.rpc("ride.echo", {"n": number}, nodeid=1).get()
                assert answer == {"n": number}, answer
                return
            except OSError:
                pause(0.02)

    def publish(self, topic, payload=None):
        self.handle.event_send(topic, payload)


def ride(brokers):
    writer = Writer(brokers)
    writer.uri = brokers.uri(0)
    writer.write()
    here = os.path.dirname(os.path.abspath(__file__))
    uri = brokers.uri(1, "resume")
    command = ["flux", "python", f"{here}/ride-client.py", uri, str(writer.jobid.dec)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(client.stdout.readline())]
    while "ready" not in lines[-1]:
        lines.append(json.loads(client.stdout.readline()))
    for number in range(KILLS):
        writer.write()
        brokers.kill(1)
        writer.write()
        pause(random.uniform(0, AWAY))
        brokers.start(1)
        brokers.await_run(1)
        writer.write()
        writer.ask(number)
        writer.publish("ride.event", {"n": number})
    writer.write()
    writer.ask(KILLS)
    appended = len("".join(writer.appends))
    writer.publish("ride.stop", {"memos": writer.memos, "appended": appended})
    lines += [json.loads(line) for line in client.stdout]
    assert client.wait() == 0, client.returncode
    flux.job.cancel(writer.handle, writer.jobid)
    flux.job.event_wait(writer.handle, writer.jobid, "clean", raiseJobException=False)
    return writer, lines


def check(writer, lines):
    def given(name):
        return [line[name] for line in lines if name in line]

    def same(name, got, expected):
        assert got == expected, f"{name}: {got} is not {expected}"

    same("memos", given("memo"), list(range(1, writer.memos + 1)))
    same("appends", "".join(given("appended")), "".join(writer.appends))
    same("events", given("event"), list(range(KILLS)))
    same("errors", given("failed") + given("watch_ended"), [])
    same("refusals", given("refused"), [104] * KILLS)
    assert given("lookups")[0] > 0
    print(f"{KILLS} kills: {writer.memos} entries twice, {given('lookups')[0]} lookups")


with Brokers(2) as brokers:
    check(*ride(brokers))
