"""usage: dump-synced.py

A clean stop with content.dump has the dump on the disk, and the next start the database that is made
from it: what is synced is written to a file, by a task that flux modprobe loads before those of
job-exec-rs. Without the module's tasks nobody syncs them."""

import os

from brokers import Brokers

RECORD = """
import os

def recorded(descriptor, sync=os.fsync):
    with open({path!r}, "a", encoding="utf-8") as record:
        print(os.readlink(f"/proc/self/fd/{{descriptor}}"), file=record)
    sync(descriptor)

os.fsync = recorded
"""

with Brokers(1, ["content.dump=auto", "content.restore=auto"]) as instance:
    synced = instance.path("synced")
    for name in ("rc1.d", "rc3.d"):
        place = os.path.join(os.environ["FLUX_MODPROBE_PATH_APPEND"], name, "00-record.py")
        with open(place, "w", encoding="utf-8") as task:
            task.write(RECORD.format(path=synced))
    instance.flux("kvs", "put", "here=1")
    instance.stop()
    with open(synced, encoding="utf-8") as record:
        paths = record.read().split()
    dumps = instance.path("state/dump")
    assert [os.path.dirname(paths[0]), paths[1]] == [dumps, dumps] and paths[0].endswith(".tgz"), paths
    instance.start()
    instance.await_run()
    assert instance.flux("kvs", "get", "here").strip() == "1"
    with open(synced, encoding="utf-8") as record:
        paths = record.read().split()[2:]
    assert instance.path("state/content.sqlite") in paths and instance.path("state") in paths, paths
