"""usage: ride-signals.py

A task prints while its leader shell's broker is stopped. It ends, and its shell waits until it can
hand the output over. Signals that arrive then, as they do from a broker that was away itself, must
not end the shell."""

import os
import signal

from brokers import Brokers, pause

LINES = 100
TASK = """
if test $FLUX_TASK_RANK = 0; then cat {end}; exit; fi
echo $PPID >{shell}
cat {print}
for i in $(seq {lines}); do echo $i; done
"""
FOR_TASKS = signal.SIGINT, signal.SIGTERM, signal.SIGALRM


def blocked(pid):
    """Which of them a process blocks, as flux-shell does to read them in its reactor."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigBlk:"))
    return {number for number in FOR_TASKS if mask >> (number - 1) & 1}


def ride(brokers):
    gates = {name: brokers.path(name) for name in ("end", "print", "shell")}
    for path in gates.values():
        os.mkfifo(path)
    task = TASK.format(lines=LINES, **gates)
    job = brokers.flux("submit", "-N2", "-n2", "sh", "-c", task).strip()
    with open(gates["shell"], encoding="utf-8") as file:
        pid = int(file.read())
    assert blocked(pid) == set(FOR_TASKS), "this flux-shell passes other signals on"
    brokers.flux("job", "wait-event", "-t60", "-p", "exec", job, "shell.start")
    leader = brokers.processes[0]
    leader.send_signal(signal.SIGSTOP)
    with open(gates["print"], "w", encoding="utf-8"):
        pass
    while blocked(pid):
        pause(0.01)
    for number in FOR_TASKS:
        os.kill(pid, number)
    leader.send_signal(signal.SIGCONT)
    with open(gates["end"], "w", encoding="utf-8"):
        pass
    brokers.flux("job", "wait-event", "-t60", job, "clean")
    eventlog = brokers.flux("job", "eventlog", job)
    assert "finish status=0" in eventlog and " exception " not in eventlog, eventlog
    printed = brokers.flux("job", "attach", job).split()
    assert printed == [str(number + 1) for number in range(LINES)], printed


with Brokers(2) as instance:
    ride(instance)
