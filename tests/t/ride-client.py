"""usage: ride-client.py URI JOBID

A client that does a little of everything, and says as lines of JSON what it is given. It ends
when it has seen as much as the event ride.stop says that there is."""

import base64
import json
import sys

import flux
import flux.constants
from flux.core.watchers import TimerWatcher
from flux.job import JobID

KVS_WATCH, KVS_WATCH_APPEND = 4, 256


def say(**what):
    print(json.dumps(what), flush=True)


class Client:
    def __init__(self, uri, jobid):
        self.handle = flux.Flux(uri)
        self.jobid = jobid
        self.lookups = 0
        self.memos = 0
        self.appended = ""
        self.goal = None

    def stream(self, topic, payload, each, end):
        future = self.handle.rpc(topic, payload, flags=flux.constants.FLUX_RPC_STREAMING)

        def answered(future):
            try:
                answer = future.get()
            except OSError as error:
                end(error)
                return
            each(answer)
            future.reset()

        future.then(answered)

    def watch_job(self):
        def each(answer):
            event = json.loads(answer["event"])
            if event["name"] == "memo":
                self.memos += 1
                say(memo=event["context"]["n"])
                self.end_if_done()

        payload = {"id": self.jobid, "path": "eventlog", "flags": 0}
        end = lambda error: say(watch_ended=str(error))
        self.stream("job-info.eventlog-watch", payload, each, end)

    def watch_key(self):
        def each(answer):
            text = base64.b64decode(answer["val"]["data"]).decode()
            self.appended += text
            say(appended=text)
            self.end_if_done()

        payload = {"key": "log", "namespace": "primary", "flags": KVS_WATCH | KVS_WATCH_APPEND}
        self.stream("kvs-watch.lookup", payload, each, lambda error: say(watch_ended=str(error)))

    def follow_journal(self):
        def end(error):
            say(refused=error.errno, text=str(error))
            self.follow_journal()

        payload = {"full": False}
        self.stream("job-manager.events-journal", payload, lambda answer: None, end)

    def serve(self):
        self.handle.service_register("ride").get()

        def echo(handle, watcher, message, arg):
            handle.respond(message, message.payload)

        self.watcher = self.handle.msg_watcher_create(
            echo, flux.constants.FLUX_MSGTYPE_REQUEST, "ride.echo"
        )
        self.watcher.start()

    def subscribe(self):
        self.handle.event_subscribe("ride.")

        def received(handle, watcher, message, arg):
            if message.topic == "ride.stop":
                self.goal = message.payload
                self.end_if_done()
            else:
                say(event=message.payload["n"])

        self.events = self.handle.msg_watcher_create(
            received, flux.constants.FLUX_MSGTYPE_EVENT, "ride.*"
        )
        self.events.start()

    def end_if_done(self):
        seen = {"memos": self.memos, "appended": len(self.appended)}
        if self.goal == seen:
            say(lookups=self.lookups)
            self.handle.reactor_stop()

    def work(self):
        """Never stops asking, and never wants to hear of an error."""

        def answered(future):
            try:
                future.get()
            except OSError as error:
                say(failed=str(error))
            self.lookups += 1
            self.work()

        payload = {"key": "known", "namespace": "primary", "flags": 0}
        self.handle.rpc("kvs.lookup", payload).then(answered)

    def run(self):
        self.watch_job()
        self.watch_key()
        self.follow_journal()
        self.serve()
        self.subscribe()
        self.work()
        say(ready=True)
        self.handle.reactor_run()


Client(sys.argv[1], JobID(sys.argv[2])).run()
