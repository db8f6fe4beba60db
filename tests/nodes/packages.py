"""usage: packages.py --image DIRECTORY [--build DIRECTORY]

The Debian packages on nodes that have Flux and not the service, by the commands of README.md and
doc/admin.md alone: installed, upgraded under jobs of guests, not removed under them, removed when they
have ended, installed again, and at last removed on rank 0 alone, while a job runs elsewhere. One line for each."""

import os
import re
import subprocess

import back
from cluster import OWNER
from doctor import SETTLED_S, submit
from instance import pause

TOP = os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../..")
# Nodes have no sudo. What flux-core's package is called is all that packages ask of it.
PRELUDE = f"""
cd /
export PATH=$prefix/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset FLUX_URI
sudo() {{ if [ "$1" = -u ]; then runuser -u "$2" -- env -i "PATH=$PATH" HOME=/tmp "${{@:3}}"; else "$@"; fi; }}
"""
CONTROL = "Package: flux-core\nVersion: {}\nArchitecture: all\nMaintainer: nobody\nDescription: none\n"
RESTART, RELOAD = "systemctl restart flux", "flux module reload job-exec-rs"


class Packages(back.Back):
    """The nodes, and where they find the packages."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.place = cluster.path("packages")
        if not os.path.exists(self.place):
            self.make()

    def make(self):
        # Not small, and made soon.
        environment = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none", "DEB_BUILD_OPTIONS": "noautodbgsym"}
        build = ["--build", self.build] if self.build else []
        for version in ("0.1.0", "0.1.1"):
            command = [f"{TOP}/packaging/deb", *build, "--version", version, f"{self.place}/{version}"]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        for version in ("0.88.0", "0.89.0"):
            root = f"{self.place}/core-{version}"
            os.makedirs(f"{root}/DEBIAN")
            os.chmod(f"{root}/DEBIAN", 0o755)
            with open(f"{root}/DEBIAN/control", "w", encoding="utf-8") as control:
                control.write(CONTROL.format(version))
            command = ["dpkg-deb", "--root-owner-group", "--build", root, f"{root}.deb"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def typed(self, command, *ranks, check=True):
        """By root, as a document has it."""
        return self.order(PRELUDE + command, *ranks, check=check)

    def documented(self, file, section, user=None):
        """The first commands of a section."""
        with open(f"{TOP}/{file}", encoding="utf-8") as text:
            commands = re.search(rf"^## {section}\n.*?```\n(.*?)```", text.read(), re.S | re.M)[1]
        self.typed(f"sudo -u {user} bash -e <<'END'\n{commands}END\n" if user else f"set -e\n{commands}", 0)

    def install(self, version, says):
        """What packages say last is what is typed next."""
        for answer in self.typed(f"dpkg -i {self.place}/{version}/*.deb"):
            self.expect(says in answer.stdout, answer.stdout)

    def fit(self):
        (said,) = self.typed(f"sudo -u {OWNER} job-exec-rs doctor --all", 0)
        self.expect("  BAD  " not in said.stdout, said.stdout)

    def run_on(self, jobs):
        states = self.cluster.flux("jobs", "-a", "-no", "{state}", *jobs).split()
        self.expect(states == ["RUN"] * len(jobs), f"{states}")


def installed(nodes):
    nodes.typed(f"job-exec-rs uninstall && dpkg -i {nodes.place}/core-0.88.0.deb")
    nodes.restart()
    job = submit(nodes.cluster, "0-2", 3)
    nodes.install("0.1.0", RESTART)
    nodes.restart()
    nodes.gone([job], "job-exec-rs")
    nodes.fit()


def upgraded(nodes):
    jobs = nodes.jobs()
    nodes.install("0.1.1", RELOAD)
    nodes.documented("doc/admin.md", "Upgrade")
    nodes.run_on(jobs)
    nodes.fit()
    # alice has a systemd of her own, which knows nothing of her shells.
    units = nodes.cluster.as_user("alice", ["job-exec-rs", "units", "--all"]).stdout
    nodes.expect(units.count(" shell ") == 5 and "inactive" not in units, units)


def not_removed(nodes):
    for command in ("dpkg -r job-exec-rs", "apt-get -y remove job-exec-rs", "apt-get -y remove flux-core"):
        for answer in nodes.typed(command, check=False):
            said = answer.stdout + answer.stderr
            nodes.expect(answer.returncode != 0 and "flux cancel" in said, f"{command}: {said}")
    for command in ("dpkg -r flux-core", f"dpkg -i {nodes.place}/core-0.89.0.deb"):
        for answer in nodes.typed(command, check=False):
            nodes.expect(answer.returncode != 0, f"{command}: {answer.stdout}")
    nodes.fit()


def removed(nodes):
    running = nodes.cluster.flux("jobs", "-A", "-no", "{id}").split()
    nodes.expect(running, "no job ran")
    nodes.documented("doc/admin.md", "The way back", OWNER)
    nodes.typed("dpkg -r job-exec-rs job-exec-rs-connector")
    nodes.restart()
    nodes.cluster.flux("queue", "enable", "--all")
    nodes.gone(running, "job-exec")


def installed_again(nodes):
    nodes.install("0.1.1", RESTART)
    nodes.restart()
    nodes.gone([], "job-exec-rs")
    nodes.fit()


def removed_on_rank_0(nodes):
    """No shell runs there, so nothing refuses. The others load the module again, and have the job."""
    job = submit(nodes.cluster, "1-2", 2)
    nodes.typed("dpkg -r job-exec-rs job-exec-rs-connector", 0)
    pause(SETTLED_S)
    nodes.order("kill -KILL $(systemctl show --value --property=MainPID flux)", 0)
    # What it said last is good for a second.
    pause(SETTLED_S)
    nodes.cluster.await_all()
    for _ in range(60):
        if all(answer.returncode for answer in nodes.order(back.PROCESSES, check=False)):
            break
        pause(1)
    nodes.typed("dpkg -r job-exec-rs job-exec-rs-connector", 1, 2)
    nodes.restart()
    nodes.gone([job], "job-exec")


WAYS = {
    way.__name__: way
    for way in (installed, upgraded, not_removed, removed, installed_again, removed_on_rank_0)
}

if __name__ == "__main__":
    back.main(WAYS, Packages)
