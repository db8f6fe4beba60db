"""usage: sign-none.py USERID <JOBSPEC >SIGNED

Wraps a jobspec as flux-security's mechanism "none" does, for any user: HEADER.PAYLOAD.none, the
header a list of NUL terminated keys and typed values.
"""

import base64
import sys


def encode(data):
    return base64.b64encode(data).decode()


fields = ["version", "i1", "mechanism", "snone", "userid", "i" + sys.argv[1]]
header = "".join(field + "\0" for field in fields).encode()
print(f"{encode(header)}.{encode(sys.stdin.buffer.read())}.none")
