"""usage: flux python rpc.py [--no-response] [RANK] TOPIC JSON

Sends one request, to the nearest service without RANK. Prints the payload of the response, or
fails with the name of its errno and its text.
"""

import errno
import json
import sys

import flux
from flux.constants import FLUX_NODEID_ANY, FLUX_RPC_NORESPONSE

arguments = sys.argv[1:]
flags = 0
if arguments[0] == "--no-response":
    flags = FLUX_RPC_NORESPONSE
    arguments.pop(0)
rank = FLUX_NODEID_ANY
if len(arguments) == 3:
    rank = int(arguments.pop(0))
topic, payload = arguments
try:
    future = flux.Flux().rpc(topic, json.loads(payload), nodeid=rank, flags=flags)
    if not flags:
        print(json.dumps(future.get()))
except OSError as error:
    sys.exit(f"{errno.errorcode.get(error.errno, error.errno)}: {error.strerror}")
