"""usage: other-exec.py SAID

Another execution service, named `other`. It says hello to the job manager, and starts each job that
it is asked for without running anything. What happens it writes to the FIFO SAID, a line each.
SIGUSR1 ends all its jobs; SIGUSR2 has it say hello again."""

import signal
import sys

import flux
from flux.constants import FLUX_MSGTYPE_REQUEST

SERVICE = "other"


class Other:
    def __init__(self, said):
        self.said = open(said, "w", encoding="utf-8")
        self.handle = flux.Flux()
        self.jobs = {}
        self.handle.service_register(SERVICE).get()
        self.watchers = [
            self.handle.msg_watcher_create(self.start, FLUX_MSGTYPE_REQUEST, f"{SERVICE}.start"),
            self.handle.signal_watcher_create(signal.SIGUSR1, self.finish),
            self.handle.signal_watcher_create(signal.SIGUSR2, self.hello),
        ]
        for watcher in self.watchers:
            watcher.start()
        self.hello()

    def say(self, text):
        print(text, file=self.said, flush=True)

    def hello(self, *_):
        try:
            self.handle.rpc("job-manager.exec-hello", {"service": SERVICE}).get()
            self.say("hello")
        except OSError as error:
            self.say(f"refused {error.errno}")

    def answer(self, message, job, kind, **data):
        self.handle.respond(message, {"id": job, "type": kind, "data": data})

    def start(self, _handle, _type, message, _arg):
        job = message.payload["id"]
        self.jobs[job] = message
        self.answer(message, job, "start")
        self.say("start")

    def finish(self, *_):
        for job, message in self.jobs.items():
            self.answer(message, job, "finish", status=0)
            self.answer(message, job, "release", ranks="all", final=True)
        self.jobs.clear()
        self.say("finish")


other = Other(sys.argv[1])
other.handle.reactor_run()
