"""Records for a consumer group to read, and a watch over its commits: none may ever go back."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.kafka_clients import Record, librdkafka_produce

ANSWERED_WITHIN_S = 10


class GroupLoad:
    """Records with running numbers, and where the group's commits are."""

    def __init__(
        self, bootstrap_servers: str, admin: AdminClient, topic: str, partition_count: int, group: str
    ) -> None:
        self._bootstrap, self._admin, self._topic, self._group = bootstrap_servers, admin, topic, group
        self._partition_count = partition_count
        self.count = 0
        self._committed: dict[int, int] = {}

    def produce(self, more: int) -> None:
        """As many more, each once, spread over the partitions."""
        numbers = range(self.count, self.count + more)
        records = [Record(value=b"v%d" % number, partition=number % self._partition_count) for number in numbers]
        # a leader may be killed meanwhile, and what is sent again must not be there twice: the commits are counted
        librdkafka_produce(self._bootstrap, self._topic, records, settings={"enable.idempotence": True})
        self.count += more

    def committed(self) -> dict[int, int]:
        """Offsets of the group now; AssertionError when one went back, or when they are not told."""
        wanted = [TopicPartition(self._topic, index) for index in range(self._partition_count)]
        asked = [ConsumerGroupTopicPartitions(self._group, wanted)]
        try:
            found = self._admin.list_consumer_group_offsets(asked)[self._group].result(ANSWERED_WITHIN_S)
        except (TimeoutError, KafkaException) as error:
            # librdkafka may still wait for a coordinator that was killed, or tell of its own time limit; it is asked anew.
            raise AssertionError(f"nobody tells the offsets of group {self._group}: {error!r}") from error
        now = {position.partition: max(position.offset, 0) for position in found.topic_partitions or ()}
        for partition, offset in self._committed.items():
            assert now[partition] >= offset, f"a commit of partition {partition} is lost: {offset} was there, {now}"
        self._committed = now
        return now
