"""The options and rebalance callbacks that an application gives to the poll-loop consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, field

from clients.consumer.core.group_protocol import PROTOCOL_TYPE
from clients.consumer.membership import GroupOptions
from clients.reader.reader_options import ReaderOptions
from wire.protocol.ids import PartitionKey


class CommitRefused(Exception):
    """The coordinator refused the offsets: the member's generation has ended, or for the given
    reason.
    """


class RebalanceListener(Protocol):
    """The application's callbacks for changes of its partitions."""

    async def revoked(self, places: frozenset[PartitionKey]) -> None:
        """Called before partitions are released; their offsets can still be committed."""
        ...

    async def assigned(self, places: frozenset[PartitionKey]) -> None:
        """Partitions were assigned; none of their records has been fetched yet."""
        ...

    async def lost(self, places: frozenset[PartitionKey]) -> None:
        """The partitions belong to another member already; nothing can be committed."""
        ...


class QuietListener:
    """Does nothing."""

    async def revoked(self, places: frozenset[PartitionKey]) -> None:
        """Nothing."""

    async def assigned(self, places: frozenset[PartitionKey]) -> None:
        """Nothing."""

    async def lost(self, places: frozenset[PartitionKey]) -> None:
        """Nothing."""


class ConsumerOptions(Struct, frozen=True, kw_only=True):
    """Options of a consumer under Kafka's names. Times are in milliseconds."""

    group_id: str | None = None
    group_instance_id: str | None = None
    assignors: Sequence[str] = ("range", "roundrobin")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: float = 3_000
    rebalance_timeout_ms: int = 300_000
    is_auto_commit: bool = True
    auto_commit_interval_ms: float = 5_000
    prefetch_bytes: int = 32 * 1024 * 1024
    poll_records_max: int = 500
    """Maximum number of records that one `poll` returns, as Kafka's max.poll.records; at
    least 1.
    """
    retry_backoff_ms: float = 100
    close_timeout_ms: float = 5_000
    reader: ReaderOptions = field(default_factory=ReaderOptions)

    def group_options(self) -> GroupOptions:
        """The options of its membership."""
        return GroupOptions(
            group_id=self.group_id or "",
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
        )
