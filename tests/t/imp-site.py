"""usage: imp-site.py IMP DIRECTORY

A system instance of three brokers for guests, with a real IMP. DIRECTORY has two pipes: `commands` is
read, one in each line; `answers` gets the URI of rank 0, and then a line for each command.

  reload   loads the modules again on all ranks
  restart  kills all brokers, and starts them again
  rests    says which units stay, and which ranks are drained
  watches  says how many shells watch their job on each rank, when all three do
  run ...  runs a command of flux as the owner, and says what it prints and its exit status"""

import os
import subprocess
import sys

import flux
from brokers import Brokers, pause

SIZE = 3
PLACE = sys.argv[2]
CONFIGURATION = f"""
[access]
allow-guest-user = true
[exec]
imp = "{sys.argv[1]}"
kill-timeout = "1s"
max-kill-count = 3
"""


def restart(brokers):
    # What rank 0's KVS holds is on its disk.
    brokers.flux("kvs", "put", "--sync", "here=1")
    brokers.kill()
    brokers.start()
    brokers.await_run()


def rests(brokers):
    command = ["systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "*shell-*"]
    # A job is told clean before systemd has removed its units.
    for _ in range(200):
        units = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if not units:
            break
        pause(0.05)
    drained = brokers.flux("resource", "drain", "-no", "{ranks} {reason}")
    return " ".join((units + drained).split())


def watches(brokers):
    handles = [flux.Flux(brokers.uri(rank)) for rank in range(SIZE)]
    while True:
        stats = [handle.rpc("job-info.stats-get").get() for handle in handles]
        counts = [each["update_watchers"] for each in stats]
        if sum(counts) == SIZE:
            return " ".join(map(str, counts))
        pause(0.05)


def run(brokers, command):
    done = subprocess.run(
        ["flux", *command.split()],
        env={**os.environ, "FLUX_URI": brokers.uri(0)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return " ".join([*done.stdout.split(), f"status={done.returncode}"])


def obey(brokers, command):
    if command.startswith("run "):
        return run(brokers, command.removeprefix("run "))
    if command == "reload":
        brokers.flux("exec", "-r", "all", "flux", "module", "reload", "job-exec")
    elif command == "restart":
        restart(brokers)
    elif command == "rests":
        return rests(brokers)
    elif command == "watches":
        return watches(brokers)
    return "done"


site = Brokers(SIZE, as_service=True)
site.write("conf.d/imp.toml", CONFIGURATION)
# Guests connect to the brokers' sockets below it.
os.chmod(site.top, 0o711)
with site, open(f"{PLACE}/answers", "w", buffering=1, encoding="utf-8") as answers:
    print(site.uri(0), file=answers)
    with open(f"{PLACE}/commands", encoding="utf-8") as commands:
        for line in commands:
            print(obey(site, line.strip()), file=answers)
