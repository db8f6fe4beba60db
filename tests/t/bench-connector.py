"""usage: bench-connector.py ROUNDS [SCENE]. See tests/bench-connector."""

import base64
import itertools
import os
import statistics
import sys
import time

import flux
from flux.core.inner import ffi, raw

ROUNDS = int(sys.argv[1])
ONLY = sys.argv[2] if len(sys.argv) > 2 else ""
# Requests of one block, and of those in flight.
BLOCK, WINDOW = 512, 64
ANY = flux.constants.FLUX_NODEID_ANY
NAMESPACE = "bench"


class Client:
    """As little Python as possible: what is measured is the connection."""

    def __init__(self, scheme):
        path = os.environ["FLUX_URI"].split("://")[1]
        self.flux = flux.Flux(f"{scheme}://{path}")
        self.handle = self.flux.handle

    def ask(self, topic, payload):
        return raw.flux_rpc(self.handle, topic, payload, ANY, 0)

    @staticmethod
    def get(future):
        answer = ffi.new("char *[1]")
        raw.flux_rpc_get(future, answer)
        raw.flux_future_destroy(future)

    def one_by_one(self, topic, payloads):
        start = time.perf_counter()
        for payload in payloads:
            self.get(self.ask(topic, payload))
        return (time.perf_counter() - start) / len(payloads)

    def all_at_once(self, topic, payloads):
        start = time.perf_counter()
        waiting = [self.ask(topic, payload) for payload in payloads[:WINDOW]]
        for payload in payloads[WINDOW:]:
            self.get(waiting.pop(0))
            waiting.append(self.ask(topic, payload))
        for future in waiting:
            self.get(future)
        return (time.perf_counter() - start) / len(payloads)


numbers = itertools.count()


def puts(count):
    """No two the same: the KVS would have nothing to do."""
    payloads = []
    for number in itertools.islice(numbers, count):
        data = base64.b64encode(f"{number:048}".encode()).decode()
        dirent = '{"data":"%s","type":"val","ver":1}' % data
        ops = '[{"key":"log","flags":0,"dirent":%s}]' % dirent
        payloads.append('{"namespace":"%s","flags":0,"ops":%s}' % (NAMESPACE, ops))
    return payloads


def pings(size):
    return lambda count: ['{"pad":"%s"}' % ("x" * size)] * count


SCENES = [
    ("latency, empty", Client.one_by_one, "kvs.ping", pings(0), BLOCK),
    ("latency, 64 KiB", Client.one_by_one, "kvs.ping", pings(65536), BLOCK // 4),
    ("rate, empty", Client.all_at_once, "kvs.ping", pings(0), BLOCK),
    ("rate, 64 KiB", Client.all_at_once, "kvs.ping", pings(65536), BLOCK // 4),
    ("commits, one by one", Client.one_by_one, "kvs.commit", puts, BLOCK // 4),
    ("commits, at once", Client.all_at_once, "kvs.commit", puts, BLOCK // 2),
]

os.system(f"flux kvs namespace create {NAMESPACE}")
clients = {scheme: Client(scheme) for scheme in ("local", "resume")}
for name, method, topic, payloads, count in SCENES:
    if not name.startswith(ONLY):
        continue
    times = {scheme: [] for scheme in clients}
    for number in range(ROUNDS + 1):
        order = ["local", "resume"] if number % 2 else ["resume", "local"]
        for scheme in order:
            taken = method(clients[scheme], topic, payloads(count))
            # The first round warms up.
            if number:
                times[scheme].append(taken)
    local, resume = (statistics.median(times[scheme]) * 1e6 for scheme in clients)
    print(f"{name:22} local {local:8.1f} us  resume {resume:8.1f} us  {resume / local:.3f}")
