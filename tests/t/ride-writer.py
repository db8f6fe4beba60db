"""usage: ride-writer.py URI NAMESPACE NAME COUNT

Appends numbered lines to the key "log" of a namespace, some at a time, and says when all are done,
and how many failed. It ends with its standard input, and not before its connection is live."""

import base64
import sys

import flux

# Commits in flight.
WINDOW = 8
KVS_APPEND = 32


class Writer:
    def __init__(self, uri, namespace, name, count):
        self.handle = flux.Flux(uri)
        self.namespace, self.name, self.count = namespace, name, count
        self.next = 0
        self.answered = 0
        self.failures = []

    def write(self):
        text = f"{self.name} {self.next}\n"
        self.next += 1
        data = base64.b64encode(text.encode()).decode()
        dirent = {"data": data, "type": "val", "ver": 1}
        operation = {"key": "log", "flags": KVS_APPEND, "dirent": dirent}
        payload = {"namespace": self.namespace, "flags": 0, "ops": [operation]}
        self.handle.rpc("kvs.commit", payload).then(self.done)

    def done(self, future):
        try:
            future.get()
        except OSError as error:
            self.failures.append(str(error))
        self.answered += 1
        if self.next < self.count:
            self.write()
        elif self.answered == self.count:
            print(f"{self.name}: {len(self.failures)} failures {self.failures[:1]}", flush=True)

    def end(self, handle, watcher, *args):
        watcher.stop()
        ping = self.handle.rpc("kvs.getroot", {"namespace": self.namespace})
        ping.then(lambda future: self.handle.reactor_stop())

    def run(self):
        # flux-core's KVS can reorder commits to a namespace that the rank does not know yet.
        self.handle.rpc("kvs.getroot", {"namespace": self.namespace}).get()
        for _ in range(min(WINDOW, self.count)):
            self.write()
        watcher = self.handle.fd_watcher_create(0, self.end)
        watcher.start()
        self.handle.reactor_run()


Writer(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])).run()
