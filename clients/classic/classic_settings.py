"""The classic consumer's settings and rebalance callbacks, which an application provides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from msgspec import Struct, field

from clients.budget import FOREVER_MS
from clients.classic.core.classic_group import STRATEGIES
from clients.reader.core.positions import ResetPolicy
from clients.reader.reader_options import ReaderOptions
from wire.protocol.ids import PartitionKey

OFFSETS_STORAGES: Final = ("zookeeper", "kafka")
_GROUP_ID: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]+")


class OwnershipListener(Protocol):
    """The application's callbacks around a rebalance."""

    async def before_releasing(self, places: Mapping[PartitionKey, str]) -> None:
        """Fetchers have stopped, offsets are committed; the partitions (with their threads) are
        still owned. Empty at first.
        """
        ...

    async def before_starting(self, consumer: str, owners: Mapping[PartitionKey, str]) -> None:
        """The member has claimed its partitions and does not fetch them yet; `owners` are the
        threads of the whole group.
        """
        ...


class QuietOwnershipListener:
    """Does nothing."""

    async def before_releasing(self, places: Mapping[PartitionKey, str]) -> None:
        """Nothing."""

    async def before_starting(self, consumer: str, owners: Mapping[PartitionKey, str]) -> None:
        """Nothing."""


class ZooKeeperConsumerOptions(Struct, frozen=True, kw_only=True):
    """The old consumer's settings. Times in milliseconds."""

    group_id: str
    consumer_id: str | None = None
    strategy: str = "range"
    offsets_storage: str = "zookeeper"
    is_dual_commit: bool | None = None
    is_auto_commit: bool = True
    auto_commit_interval_ms: float = 60_000
    commit_attempts_max: int = 6
    commit_backoff_ms: float = 1_000
    consumer_timeout_ms: int = FOREVER_MS
    queued_chunks_max: int = 2
    excludes_internal: bool = True
    rebalance_attempts_max: int = 4
    rebalance_backoff_ms: float = 2_000
    session_timeout_ms: int = 6_000
    reader: ReaderOptions = field(default_factory=lambda: ReaderOptions(policy=ResetPolicy.LATEST, max_wait_ms=100))

    def __post_init__(self) -> None:
        # the id is a part of paths and of the names of consumers
        if _GROUP_ID.fullmatch(self.group_id) is None:
            raise ValueError(f"group {self.group_id!r} is not usable: accepted are letters, digits, '.', '_' and '-'")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy {self.strategy!r} is not usable: accepted are {', '.join(STRATEGIES)}")
        if self.offsets_storage not in OFFSETS_STORAGES:
            raise ValueError(
                f"offsets storage {self.offsets_storage!r} is not usable: accepted are {', '.join(OFFSETS_STORAGES)}"
            )
