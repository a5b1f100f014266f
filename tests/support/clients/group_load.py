"""Records for a consumer group to read, and a watch over its commits: none may ever go back."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.clients.kafka_clients import Record, librdkafka_produce

ANSWERED_WITHIN_S = 10
_COORDINATOR_AWAY = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "_TIMED_OUT",
    "_TRANSPORT",
    "_WAIT_COORD",
)
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}
"""librdkafka 2.16 drops every broker it has learned once none is reachable, but keeps the dropped
one as the group's coordinator: it waits for a connection that it never opens, and requests to
coordinators time out for minutes (librdkafka #5511).
"""


class CommitLost(Exception):
    """The committed offsets of a group are lost. It is no AssertionError, so that a caller that
    awaits a condition does not wait until the offsets are back.
    """


class GroupLoad:
    """Records with running numbers, and where the group's commits are."""

    def __init__(self, bootstrap_servers: str, topic: str, partition_count: int, group: str) -> None:
        self._bootstrap, self._topic, self._group = bootstrap_servers, topic, group
        # librdkafka's admin client ends the process when a coordinator has moved (librdkafka #5040)
        self._reader = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False, **KEEP_BROKERS}
        )
        self._partition_count = partition_count
        self.count = 0
        self._committed: dict[int, int] = {}

    def produce(self, more: int) -> None:
        """Send so many more records, each once, spread over the partitions."""
        numbers = range(self.count, self.count + more)
        records = [Record(value=b"v%d" % number, partition=number % self._partition_count) for number in numbers]
        # a leader may be killed meanwhile, and the retry must not store a record twice: the test
        # counts the commits
        librdkafka_produce(self._bootstrap, self._topic, records, settings={"enable.idempotence": True})
        self.count += more

    def committed(self) -> dict[int, int]:
        """The present offsets of the group. Raises AssertionError without a response, and
        CommitLost if an offset went back, which ends any wait.
        """
        wanted = [TopicPartition(self._topic, index) for index in range(self._partition_count)]
        try:
            found = self._reader.committed(wanted, timeout=ANSWERED_WITHIN_S)
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].name() in _COORDINATOR_AWAY:
                raise AssertionError(f"the offsets of group {self._group} are not answered yet: {error}") from error
            raise
        assert all(position.error is None for position in found), found
        now = {position.partition: max(position.offset, 0) for position in found}
        for partition, offset in self._committed.items():
            if now[partition] < offset:
                raise CommitLost(f"partition {partition}: {offset} was there, now {now}")
        self._committed = now
        return now
