"""Written by `job-exec-rs install`; `job-exec-rs uninstall` removes it. Run by `flux modprobe rc3`."""

import os
import sys

from flux.modprobe import task


@task(
    "sync-dump",
    ranks="0",
    after=["content-dump"],
    before=["content-backing"],
    needs_attrs=["content.dump"],
)
def sync_dump(context):
    """Has the dump of the KVS on the disk before the broker ends.

    The next start makes a new database from it and removes the old one. A power cut before the kernel has
    written the dump would leave neither."""
    dumps = os.path.join(context.attr_get("statedir"), "dump")
    try:
        for path in (os.path.join(dumps, "RESTORE"), dumps):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    except FileNotFoundError:
        pass  # dumped elsewhere, or not at all
    except OSError as error:
        print(f"job-exec-rs: the dump may not outlive a power cut: {error}", file=sys.stderr)
