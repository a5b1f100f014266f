"""The effects of a partition's flow: what its shells do after a decision."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mirror.flow.core.flow_state import FlowState
from runtime.invariants import InvariantBroken
from wire.protocol.ids import TopicPartition


class Side(enum.Enum):
    """The site whose metadata needs another look."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Drop queued batches of older generations, let batches in flight end, then answer
    `Settled`.
    """

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindTarget:
    """Ask the target for its log's start, end and last epoch."""

    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSource:
    """Ask the source for its log's start and high watermark and where `epoch` ends (-1: nothing to
    compare).
    """

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinstateCopy:
    """Let the target quarantine the copy's own records and truncate the copy there, if the link's
    policy allows it; `reason` describes the difference of the histories.
    """

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Fetch from this offset on, until the next such effect."""

    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop fetching; the answer to a request in flight is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBatches:
    """Queue the fetched batches; the target's log must end at `expected_log_end_offset` before
    them.
    """

    generation: int
    expected_log_end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """Answer `RetryDue` after a jittered wait that grows with `attempt`; slow waits are for states
    that need a person.
    """

    generation: int
    attempt: int
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshMetadata:
    """Leaders may have moved."""

    side: Side


@dataclass(frozen=True, slots=True)
class RefreshLink:
    """The link's direction may have changed."""


Effect = (
    Discard
    | FindTarget
    | CheckSource
    | ReinstateCopy
    | Fetch
    | StopFetching
    | QueueBatches
    | RetryLater
    | RefreshMetadata
    | RefreshLink
)


class Effects(Protocol):
    """The actions that the board requests from other parts."""

    def discard(self, key: TopicPartition, generation: int) -> None:
        """Drop older batches, then submit `Settled`."""
        ...

    def find_target(self, key: TopicPartition, generation: int) -> None:
        """Ask the target for its log, then submit `TargetFound` or `TargetNotFound`."""
        ...

    def check_source(self, key: TopicPartition, generation: int, epoch: int) -> None:
        """Ask the source for its log, then submit `SourceChecked` or `SourceNotFound`."""
        ...

    def reinstate_copy(self, key: TopicPartition, generation: int, reason: str) -> None:
        """Make the copy a prefix of the source again, then submit `CopyReinstated` or
        `CopyNotReinstated`.
        """
        ...

    def fetching_changed(self, key: TopicPartition) -> None:
        """The partition must be fetched from another offset, or fetching must stop."""
        ...

    def refresh_metadata(self, side: Side) -> None:
        """Query a site's topics now."""
        ...

    def refresh_link(self) -> None:
        """Read the link's record now."""
        ...


OnBroken = Callable[[InvariantBroken], None]
OnTransition = Callable[[TopicPartition, FlowState, FlowState, str], None]
"""Called with a partition, its state before and after, and the reason."""
