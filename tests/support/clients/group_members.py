"""A member of a consumer group that the test polls by hand: librdkafka, of either group
protocol.
"""

from __future__ import annotations

from typing import Any

SOME_RECORDS = 500
POLL_S = 0.05
_REFUSED_IN_REBALANCES = (
    "ILLEGAL_GENERATION",
    "REBALANCE_IN_PROGRESS",
    "STALE_MEMBER_EPOCH",
    "UNKNOWN_MEMBER_ID",
    "_NO_OFFSET",
)


class GroupMember:
    """A librdkafka consumer, polled by the test; `protocol` is consumer or classic."""

    def __init__(
        self, bootstrap_servers: str, topic: str, group: str, *, protocol: str = "consumer", **more: Any
    ) -> None:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "on_commit": self._committed,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.values: list[bytes] = []
        self._failed_commits: list[str] = []
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])

    def poll(self) -> int:
        """Read the available records; returns the number of records so far."""
        while self.poll_some():
            pass
        return len(self.values)

    def poll_some(self) -> int:
        """Read up to `SOME_RECORDS` records; returns the number of messages. For members under a
        load, whose records never end.
        """
        messages = self.consumer.consume(SOME_RECORDS, POLL_S)
        values = [message.value() or b"" for message in messages if message.error() is None]
        self.values.extend(values)
        return len(messages)

    def try_commit(self) -> None:
        """Commit the position; in a rebalance the commit may be refused, and another member reads
        the records again.

        No caller waits for the answer: a commit is sent behind the member's JoinGroup, which is
        answered when the other members have joined, and these may be polled by the same thread.
        """
        self.consumer.commit(asynchronous=True)
        assert not self._failed_commits, self._failed_commits

    def _committed(self, error: Any, _partitions: list[Any]) -> None:
        if error is not None and error.name() not in _REFUSED_IN_REBALANCES:
            self._failed_commits.append(str(error))

    def partitions(self) -> list[int]:
        """The partitions that it owns now."""
        self.poll()
        return sorted(owned.partition for owned in self.consumer.assignment())

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
