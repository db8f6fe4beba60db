"""usage: flux python barrier.py JOBID RANK

Enters the two start barriers of a job as flux-shell does: a request without a matchtag to the
nearest job-exec, which is answered nevertheless.
"""

import sys

import flux
from flux.constants import FLUX_MSGTYPE_RESPONSE, FLUX_RPC_NORESPONSE

handle = flux.Flux()
entry = {"id": int(sys.argv[1]), "rank": int(sys.argv[2])}
for _ in range(2):
    handle.rpc("job-exec.shell-barrier", entry, flags=FLUX_RPC_NORESPONSE)
    # decode() raises what an error response says.
    handle.recv(type_mask=FLUX_MSGTYPE_RESPONSE).decode()
