"""usage: mover.py GATE. A process that is another one every 5 ms, and ignores SIGTERM: who signals the processes
that he has found misses it. Opens the gate first, so that somebody knows that it runs."""

import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "w", encoding="utf-8") as gate:
    gate.write("moves\n")
while os.fork() == 0:
    os.setsid()
    time.sleep(0.005)
