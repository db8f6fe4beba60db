"""A checkpoint holds a job's R, and not yet its alloc event; then the broker dies. The job, and those
behind it, must get resources nevertheless."""

from brokers import Brokers
from flux.job import JobID


def key(job, name):
    return f"{JobID(job).kvs}.{name}"


with Brokers(1, as_service=True) as brokers:
    ended = brokers.flux("submit", "true").strip()
    brokers.flux("job", "wait-event", "-t60", ended, "clean")
    resources = brokers.flux("kvs", "get", "--raw", key(ended, "R"))
    job = brokers.flux("submit", "--urgency=hold", "true").strip()
    brokers.flux("job", "wait-event", "-t60", job, "priority")
    # As the scheduler does, a moment before the job manager posts alloc.
    brokers.flux("kvs", "put", f"{key(job, 'R')}={resources}")
    # job-exec can have begun with the job (chaos seed 8704).
    begun = brokers.flux("submit", "--urgency=hold", "true").strip()
    brokers.flux("job", "wait-event", "-t60", begun, "priority")
    namespace = f"job-{JobID(begun).dec}"
    brokers.flux("kvs", "link", f"--target-namespace={namespace}", ".", key(begun, "guest"))
    brokers.flux("kvs", "put", f"{key(begun, 'guest-checkpoint')}=1")
    brokers.flux("kvs", "put", "--sync", f"{key(begun, 'R')}={resources}")
    brokers.kill()
    brokers.start()
    brokers.await_run()
    # Else the job could get what the forgotten run has written.
    left = brokers.flux("kvs", "ls", "-1", str(JobID(begun).kvs)).split()
    assert sorted(left) == ["J", "eventlog", "jobspec"], left
    for one in (job, begun):
        brokers.flux("job", "urgency", one, "16")
    behind = brokers.flux("submit", "true").strip()
    for one in (job, begun, behind):
        brokers.flux("job", "wait-event", "-t60", one, "clean")
        assert brokers.flux("jobs", "-no", "{result}", one).strip() == "COMPLETED"
    assert brokers.flux("kvs", "get", "--raw", key(ended, "R")) == resources
