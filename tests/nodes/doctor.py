"""usage: doctor.py --image DIRECTORY

Brings about one fault after the other on a node where a guest's job runs, and asks `flux job-exec-rs
doctor` there. It must name the fault, and nothing when that is mended. At last the power of the node is
cut: the job there ends, for that reason, and a job on another node runs on. One line for each fault."""

import argparse
import os
import shutil
import sys
import tempfile

from cluster import OWNER, Cluster
from instance import pause

# Where the faults are, and the rank of the job that must not notice.
RANK, OTHER = 1, 2
# How long a fault takes to show, or to be mended.
SETTLED_S = 5
# For commands that root gives on a node. `as_owner` runs one as the instance's owner.
PRELUDE = f"""
. /etc/nodes
export PATH=$prefix/bin:$PATH FLUX_URI=local:///run/flux/local
export XDG_RUNTIME_DIR=/run/user/$(id -u {OWNER})
lua=$etc/shell/lua.d/50-job-exec-rs.lua connector=$prefix/lib/flux/connectors/resume.so
away=/var/tmp/away
manager=user@$(id -u {OWNER}).service
drop_in=/etc/systemd/system/flux.service.d/by-test.conf
set_of_unit() {{ mkdir -p ${{drop_in%/*}}; printf '[Service]\\n%s\\n' "$1" >$drop_in; systemctl daemon-reload; }}
unset_of_unit() {{ rm $drop_in; systemctl daemon-reload; }}
as_owner() {{ setpriv --reuid={OWNER} --regid={OWNER} --init-groups env HOME=/tmp "$@"; }}
"""
# What is wrong, how it is brought about and mended, and the line of doctor that must say so.
FAULTS = (
    ("no file for flux-shell", 'mv "$lua" $away', 'mv $away "$lua"', "installation"),
    ("no connector", 'mv "$connector" $away', 'mv $away "$connector"', "installation"),
    ("no module", "as_owner flux module remove job-exec-rs", "as_owner flux module load job-exec-rs", "module"),
    ("pam_systemd for the IMP", "cp -p /etc/pam.d/flux $away; echo session optional pam_systemd.so >>/etc/pam.d/flux",
     "mv $away /etc/pam.d/flux", "PAM"),
    ("pam_systemd in what the IMP's stack includes",
     "cp -p /etc/pam.d/flux $away; echo session optional pam_systemd.so >/etc/pam.d/by-test;"
     " echo @include by-test >>/etc/pam.d/flux", "mv $away /etc/pam.d/flux; rm /etc/pam.d/by-test", "PAM"),
    ("an IMP that is not setuid", 'chmod u-s "$imp"', 'chmod u+s "$imp"', "IMP"),
    ("Flux would come back late",
     "set_of_unit RestartSec=5min", "unset_of_unit", "restart"),
    ("a run directory that goes", "set_of_unit RuntimeDirectoryPreserve=no", "unset_of_unit", "run directory"),
    ("a full disk", "n=0; while fallocate -l 64M /var/lib/flux/fill-$n; do n=$((n + 1)); done",
     "rm /var/lib/flux/fill-*", "room"),
    ("a user manager that hangs", "systemctl kill -s STOP --kill-whom=main $manager",
     "systemctl kill -s CONT --kill-whom=main $manager", "user manager"),
    ("no bus", "as_owner systemctl --user stop dbus.socket dbus.service",
     "DBUS_SESSION_BUS_ADDRESS= as_owner systemctl --user start dbus.socket", "unit"),
    ("a unit that nobody owns",
     "mark=$(as_owner systemctl --user list-units --plain --no-legend 'imp-shell-*' | sed 's/.service .*//; s/.*-//');"
     " as_owner systemd-run --user --unit=shell-1-f2222-$mark sleep inf",
     "as_owner systemctl --user stop 'shell-1-f2222-*'", "leftovers"),
    ("a broker that is stopped", "systemctl stop flux", "systemctl start flux", "broker"),
)


def arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--image", required=True, help="what tests/nodes/image has made")
    return parser.parse_args()


def found(cluster):
    """What doctor says is bad on the node, and its output."""
    done = cluster.as_user(OWNER, ["flux", "job-exec-rs", "doctor"], RANK)
    bad = [line.split("BAD", 1)[1].strip() for line in done.stdout.splitlines() if "  BAD  " in line]
    return bad, done.stdout + done.stderr


def order(cluster, command):
    done = cluster.nodes.run(RANK, PRELUDE + command)
    return f"{command}: {done.stderr}" if done.returncode != 0 else ""


def play(cluster, fault):
    """A line, and whether all was right."""
    what, break_it, mend_it, line = fault
    failed = order(cluster, break_it)
    pause(SETTLED_S)
    bad, said = found(cluster)
    failed += order(cluster, mend_it)
    cluster.await_all()
    pause(SETTLED_S)
    left, said_after = found(cluster)
    is_right = not failed and any(text.startswith(line) for text in bad) and not left
    return f"{what}: {'; '.join(bad) or 'not named'}" + ("" if is_right else f"\n{failed}{said}{said_after}"), is_right


def submit(cluster, ranks, count):
    command = ["flux", "submit", f"-N{count}", f"-n{count}", f"--requires=rank:{ranks}", "--cwd=/", "sleep", "inf"]
    job = cluster.as_user("alice", command).stdout.strip()
    cluster.flux("job", "wait-event", "-t60", job, "start")
    return job


def cut_power(cluster, here, elsewhere):
    """A line, and whether all was right."""
    pause(SETTLED_S)
    cluster.nodes.cut_power(RANK)
    cluster.nodes.boot(RANK)
    cluster.nodes.await_boot(RANK)
    cluster.await_all()
    cluster.flux("job", "wait-event", "-t120", here, "clean")
    said = cluster.flux("job", "eventlog", here)
    state = cluster.flux("jobs", "-no", "{state}", elsewhere).strip()
    is_right = f"(rank {RANK}): node was rebooted" in said and state == "RUN"
    return f"a power cut: the job elsewhere is in {state}" + ("" if is_right else f"\n{said}"), is_right


def main():
    options = arguments()
    os.umask(0)
    top = tempfile.mkdtemp(prefix="nodes-")
    cluster = Cluster(3, options.image, top)
    right = True
    try:
        cluster.start()
        pause(SETTLED_S)
        here, elsewhere = submit(cluster, f"{RANK},{OTHER}", 2), submit(cluster, OTHER, 1)
        bad, said = found(cluster)
        print("before:", said if bad else "nothing is bad", flush=True)
        right &= not bad
        for fault in FAULTS:
            line, is_right = play(cluster, fault)
            print(line, flush=True)
            right &= is_right
        line, is_right = cut_power(cluster, here, elsewhere)
        print(line, flush=True)
        right &= is_right
    finally:
        cluster.stop()
        shutil.rmtree(top, ignore_errors=True)
    print("all right" if right else "something is wrong")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
