"""Produce with acks=all: answered when every in-sync replica has the records.

Interpreted, because the simulation replaces a method (`tests/sim/mutants.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from broker.handlers.records.produce_responses import ResponseDoors, answer
from broker.network.entities import topic_id_bytes
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.hosted_partition import HostedPartition
from wire.protocol.messages.produce_codec import PartitionProduced, TopicProduced

if TYPE_CHECKING:
    from broker.network.exchange import Exchange


class WaitingProduce:
    """A request with acks=all whose records are not on every in-sync replica yet."""

    def __init__(
        self,
        doors: ResponseDoors,
        exchange: Exchange,
        topics: list[TopicProduced],
        missing: dict[tuple[str, int], tuple[HostedPartition, int]],
    ) -> None:
        self._doors = doors
        self._exchange = exchange
        self._topics = topics
        self._missing = missing
        self._led_since = {key: hosted.state.led_since_epoch for key, (hosted, _) in missing.items()}
        self._failed: dict[tuple[str, int], ErrorCode] = {}

    def begin(self, timeout_ms: float) -> None:
        """Wait for the high watermarks."""
        purgatory = self._doors.replicas.purgatory
        entry = purgatory.wait(self, DelayedOperation.PRODUCE, keys=list(self._missing), timeout_ms=timeout_ms)
        # the client may have disconnected while it waits: then nothing is kept for it
        self._exchange.reserve_slot(lambda: purgatory.forget(entry))

    def changed(self, key: Hashable, grown_bytes: int) -> bool:  # noqa: ARG002  the Waiter's signature
        """A partition has changed; True if no partition is pending."""
        # a copy: the loop removes settled partitions
        for missing_key, (hosted, offset) in tuple(self._missing.items()):
            if missing_key != key:
                continue
            state = hosted.state
            if not state.is_leader or state.led_since_epoch != self._led_since[missing_key]:
                # the leadership was interrupted: the log may have been truncated and have other
                # records there
                self._failed[missing_key] = ErrorCode.not_leader_or_follower
            elif state.high_watermark < offset:
                continue
            elif not state.has_enough_in_sync:
                # Kafka's code for replicas lost after the append: the client sends again, and
                # duplicates are recognised
                self._failed[missing_key] = ErrorCode.not_enough_replicas_after_append
            del self._missing[missing_key]
        return not self._missing

    def complete(self) -> None:
        """Answer; the partitions that are still awaited have timed out."""
        self._exchange.resume(self._answer)

    def _answer(self) -> None:
        # acks=all with a timeout: the records may still become safe, and the producer sends them
        # again
        self._failed.update(dict.fromkeys(self._missing, ErrorCode.request_timed_out))
        image = self._doors.cluster.image
        topics = []
        for topic in self._topics:
            name = topic.name or image.topic_names.get(topic_id_bytes(topic.topic_id), "")
            partitions = [
                PartitionProduced(partition.partition_index, error)
                if (error := self._failed.get((name, partition.partition_index))) is not None
                else partition
                for partition in topic.partitions
            ]
            topics.append(topic._replace(partitions=partitions))
        answer(self._doors, self._exchange, topics)
