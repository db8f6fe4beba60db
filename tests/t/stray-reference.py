"""A checkpoint holds a reference to the guest namespace of a job beside its moved data; then the
broker dies, and no node has a record of the job (simulator seed 12384163)."""

import glob
import os

from brokers import Brokers
from flux.job import JobID


def key(job, name):
    return f"{JobID(job).kvs}.{name}"


def names(brokers, job):
    return set(brokers.flux("kvs", "ls", "-1", str(JobID(job).kvs)).split())


with Brokers(1, as_service=True) as brokers:
    # A job that cannot be read, before the others in the KVS, keeps none of them from being mended.
    brokers.flux("kvs", "put", f"{key(0, 'R')}={{}}")
    ended = brokers.flux("submit", "true").strip()
    brokers.flux("job", "wait-event", "-t60", ended, "clean")
    brokers.flux("kvs", "put", f"{key(ended, 'guest-checkpoint')}=1")
    # One that is not moved: the reference may be all there is.
    linked = brokers.flux("submit", "--urgency=hold", "true").strip()
    brokers.flux("kvs", "link", "--target-namespace=primary", ".", key(linked, "guest"))
    brokers.flux("kvs", "put", "--sync", f"{key(linked, 'guest-checkpoint')}=1")
    brokers.kill()
    for record in glob.glob(brokers.path("state-0/**/*.record"), recursive=True):
        os.remove(record)
    brokers.start()
    brokers.await_run()
    assert "guest-checkpoint" not in names(brokers, ended), names(brokers, ended)
    assert {"guest", "R"} <= names(brokers, ended), names(brokers, ended)
    assert {"guest", "guest-checkpoint"} <= names(brokers, linked), names(brokers, linked)
