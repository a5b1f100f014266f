"""One transaction of a translate link at its target, as its writers see it, and the errors that end
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol

from kio.schema.errors import ErrorCode

from mirror.link.ports import Unreachable
from mirror.translate.notes.core.stored_map import StoredRecord
from wire.client.client_errors import BrokerError
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import PartitionKey, TopicPartition

FENCING = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
"""The errors with which a target refuses an epoch that is not the last one."""


class TakenOver(Unreachable):
    """Another mirror of the link writes now, so this one must not."""


class Book(Protocol):
    """The notes of the link (`translations.py`)."""

    def notes(self, keys: Iterable[TopicPartition]) -> Sequence[Sequence[StoredRecord]]:
        """The notes for the state after all planned batches of these partitions, with other
        changes.
        """
        ...

    def settle(self, keys: Iterable[TopicPartition]) -> None:
        """Confirm the last notes, and everything planned of these partitions."""
        ...

    def give_up(self, keys: Iterable[TopicPartition]) -> None:
        """Discard the last notes, and everything planned of these partitions."""
        ...

    async def load(self) -> None:
        """Read the target's notes, and use them."""
        ...


class Transaction:
    """One transaction as its writers see it. `over` resolves when it is committed, and raises
    Unreachable when it is aborted.
    """

    def __init__(self, stamp: ProducerIdentity) -> None:
        self.stamp = stamp
        self.notes: list[Sequence[StoredRecord]] = []
        # Partitions whose brokers know already that they belong to it.
        self.begun: set[PartitionKey] = set()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # There may be no waiter.
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())


def is_fencing(error: BaseException) -> bool:
    """True if the target has reported that a later epoch of our transactional id exists."""
    cause = error.__cause__
    return isinstance(cause, BrokerError) and cause.code in FENCING
