"""One topic of a replicated site: its brokers by role, one record to it, and the end of a load on
it that must be unharmed.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message, Producer

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.sites.replicated_site import ReplicatedSite

TOPIC = "orders"


def a_leader(site: ReplicatedSite) -> int:
    """A broker that leads a partition and is not the controller."""
    return next(node for node in site.leaders(TOPIC).values() if node != site.controller())


def a_follower(site: ReplicatedSite) -> int:
    """A broker that does not lead partition 0 and is not the controller."""
    return next(node for node in site.nodes if node != site.leaders(TOPIC)[0] and node != site.controller())


def produce_one(site: ReplicatedSite, **settings: Any) -> str:
    """Outcome of one record to partition 0 with acks=all: empty, or the error's name."""
    outcome: list[str] = []

    def delivered(error: Any, _: Message) -> None:
        outcome.append("" if error is None else error.name())

    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all", "log_level": 2, **settings})
    producer.produce(TOPIC, b"one", partition=0, on_delivery=delivered)
    assert producer.flush(120) == 0
    return outcome[0]


async def finish_unharmed(site: ReplicatedSite, load: AcknowledgedLoad, partitions: int) -> None:
    """End a load: each acknowledged record is there once and in order, and the replicas are the
    same bytes. Raises AssertionError otherwise.
    """
    load.finish()
    site.wait_in_sync(TOPIC)
    await load.check_log(site.bootstrap)
    site.wait_equal(TOPIC, partitions)


def print_silences(event: str, load: AcknowledgedLoad, since: float) -> None:
    """Print for each partition the longest time without an acknowledgement after the event; `since`
    is its monotonic time.
    """
    shown = ", ".join(f"{silence:.0f}" for silence in load.silences_ms(since))
    print(f"{event}: longest silence by partition {shown} ms")
