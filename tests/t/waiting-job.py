"""A job waits for resources, and nothing runs: a few seconds later it is not forgotten any more when
rank 0's broker is killed."""

import flux
from brokers import Brokers, pause


def await_checkpoint(brokers):
    """Until a checkpoint holds what is in the KVS now. No event tells it."""
    handle = flux.Flux(brokers.uri(0))
    sequence = handle.rpc("kvs.getroot", {"namespace": "primary"}).get()["rootseq"]
    saved = -1
    while saved < sequence:
        try:
            saved = handle.rpc("content.checkpoint-get").get()["value"][0]["sequence"]
        except FileNotFoundError:
            pass
        pause(0.02)


instance = Brokers(1, as_service=True)
with instance:
    job = instance.flux("submit", "--urgency=hold", "true").strip()
    await_checkpoint(instance)
    instance.kill()
    instance.start()
    instance.await_run()
    instance.flux("job", "urgency", job, "default")
    instance.flux("job", "wait-event", "-t60", job, "clean")
