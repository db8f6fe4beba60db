"""usage: flux python mend-many.py RC1

Many jobs are in the KVS after a crash. The tasks that `flux modprobe rc1` runs (RC1) find those that only a
checkpoint has made what they are. They ask for many jobs at once, and read no eventlog of a job that ended."""

import importlib.util
import sys

import flux
import flux.kvs

JOBS = 300
AT_ONCE = 50
LOG = '{"timestamp":1.0,"name":"submit","context":{"userid":0}}\n'
ALLOC = '{"timestamp":2.0,"name":"alloc"}\n'


class Counting:
    """A handle that counts its questions, and how many have no answer yet."""

    def __init__(self):
        self.handle = flux.Flux()
        self.waiting = self.most = self.eventlogs = 0

    def rpc(self, topic, request):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.eventlogs += request["key"].endswith(".eventlog")
        return Answer(self, self.handle.rpc(topic, request))


class Answer:
    def __init__(self, counting, future):
        self.counting, self.future = counting, future

    def get(self):
        self.counting.waiting -= 1
        return self.future.get()


def put_jobs(handle):
    """Returns the directory of these jobs, and what has to be found."""
    top = "job.7fff.0000.0000"
    namespace = {"ver": 1, "type": "symlink", "data": {"namespace": "job-1", "target": "."}}
    for number in range(JOBS):
        key, is_running = f"{top}.{number:04x}", number % 100 == 7
        # Some were allocated when the checkpoint fell.
        alloc = "" if number in (107, 7) else ALLOC
        flux.kvs.put(handle, f"{key}.eventlog", LOG + alloc, raw=True)
        flux.kvs.put(handle, f"{key}.R", {"version": 1})
        if is_running:
            flux.kvs.put_symlink(handle, f"{key}.guest", ".")
        else:
            flux.kvs.put(handle, f"{key}.guest.exec.eventlog", LOG, raw=True)
        if number in (7, 30):
            flux.kvs.put(handle, f"{key}.guest-checkpoint", namespace)
    flux.kvs.commit(handle)
    return top, [
        (f"{top}.0007", {"R", "guest", "guest-checkpoint"}),
        (f"{top}.001e", {"guest-checkpoint"}),
        (f"{top}.006b", {"R", "guest"}),
    ]


def main():
    spec = importlib.util.spec_from_file_location("rc1", sys.argv[1])
    rc1 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rc1)
    rc1.AT_ONCE = AT_ONCE
    counting = Counting()
    top, expected = put_jobs(counting.handle)
    try:
        found = sorted(rc1.left_by_checkpoint(counting))
    finally:
        flux.kvs.put_unlink(counting.handle, top)
        flux.kvs.commit(counting.handle)
    assert [job for job in found if job[0].startswith(top)] == expected, found
    assert counting.most == AT_ONCE, counting.most
    # Three that run. The instance has a few of its own.
    assert counting.eventlogs < 20, counting.eventlogs


if __name__ == "__main__":
    main()
