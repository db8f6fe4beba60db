"""A job waits for resources, and nothing runs: with kvs.checkpoint-period it is not forgotten when
rank 0's broker is killed (README, Install)."""

import flux
from brokers import Brokers, pause

CONFIG = """
[kvs]
checkpoint-period = "0.1s"
"""


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
instance.write("conf.d/kvs.toml", CONFIG)
with instance:
    job = instance.flux("submit", "--urgency=hold", "true").strip()
    await_checkpoint(instance)
    instance.kill()
    instance.start()
    instance.await_run()
    instance.flux("job", "urgency", job, "default")
    instance.flux("job", "wait-event", "-t60", job, "clean")
