"""Chooses the partition of each record that a producer sends: topic metadata and a partitioner."""

from __future__ import annotations

from clients.core.partitioners import Choice, checked
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from clients.topics import Topics
from runtime.chance import jitter


class PartitionChoice:
    """The choices of one producer."""

    def __init__(self, topics: Topics, options: ProducerOptions) -> None:
        self._topics = topics
        self._partitioner = options.partitioner()
        self._batch_bytes_max = options.batch_bytes_max
        # by topic: bytes of records without a key since the partitioner was last asked for another
        # partition
        self._keyless_bytes: dict[str, int] = {}

    async def of(self, record: ProducerRecord) -> int:
        """The partition of the record. Raises NoPartition, PartitionOutOfRange, and BrokerError if
        the topic does not exist.
        """
        if not record.topic:
            raise ValueError("a record needs a topic")
        partitions = (await self._topics.look_up(record.topic)).partitions
        choice = Choice(
            topic=record.topic,
            key=record.partition_key if record.partition_key is not None else record.key,
            partition_count=len(partitions),
            available=[index for index, partition in sorted(partitions.items()) if partition.leader_id >= 0],
        )
        chosen = record.partition if record.partition is not None else self._partitioner.choose(choice, _draw)
        return checked(chosen, choice)

    def note_appended(self, record: ProducerRecord, *, is_batch_full: bool) -> None:
        """Make the partitioner choose another partition after a full batch, or after the same
        number of bytes in smaller batches (KIP-794).
        """
        if record.key is None and record.partition_key is None:
            appended_bytes = self._keyless_bytes.get(record.topic, 0) + record.size_bytes
            self._keyless_bytes[record.topic] = appended_bytes
            is_batch_full |= appended_bytes >= self._batch_bytes_max
        if is_batch_full:
            self._keyless_bytes[record.topic] = 0
            self._partitioner.rotate(record.topic)

    def note_refresh(self) -> None:
        """The topics' metadata were refreshed."""
        self._partitioner.refreshed()


def _draw(count: int) -> int:
    return jitter().randrange(count)
