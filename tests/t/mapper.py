"""usage: mapper.py ASKED PROPERTIES

Stands in for flux-core's module sdexec-mapper on this broker: whatever it is asked for, it answers
with these properties, a JSON object. It opens the FIFO ASKED when it is ready, and writes each R that
it is asked about there."""

import json
import sys

import flux
from flux.constants import FLUX_MSGTYPE_REQUEST

SERVICE = "sdexec-mapper"
ASKED, PROPERTIES = sys.argv[1], json.loads(sys.argv[2])


def say(text):
    with open(ASKED, "w", encoding="utf-8") as asked:
        print(text, file=asked)


def lookup(handle, _type, message, _arg):
    handle.respond(message, PROPERTIES)
    say(message.payload["R"])


handle = flux.Flux()
handle.service_register(SERVICE).get()
watcher = handle.msg_watcher_create(lookup, FLUX_MSGTYPE_REQUEST, f"{SERVICE}.lookup")
watcher.start()
say("ready")
handle.reactor_run()
