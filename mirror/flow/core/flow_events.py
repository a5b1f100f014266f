"""The commands of a partition's flow: reports from its shells, operators and links.

Commands that answer an effect carry the effect's generation; the flow ignores answers to requests
that it has dropped. A generation ends whenever the flow gives up its position and starts again from
the target's log end.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from mirror.link.core.link_roles import LinkRole
from mirror.link.core.partitions import BatchRun


class SourceTrouble(enum.Enum):
    """The reason why a fetch brought nothing."""

    UNREACHABLE = "unreachable"
    MOVED = "moved"  # another leader or leader epoch, or the topic does not exist yet
    OUT_OF_RANGE = "out of range"
    MALFORMED = "malformed"


class TargetRefusal(enum.Enum):
    """The reason why the target refused an append and a retry does not help."""

    OFFSET_MISMATCH = "offset mismatch"
    UNACCEPTABLE = "unacceptable"
    DIVERGED = "diverged"
    STALE_LINK = "stale link"
    ACTIVE = "active"
    CORRUPT = "corrupt"
    UNKNOWN_TOPIC = "unknown topic"


class Start(Struct, frozen=True):
    """Begin; also after a worker of this partition died."""

    reason: str = "the mirror starts"


class CopyBegins(Struct, frozen=True, kw_only=True):
    """The source had deleted the records below `offset` when the copy was made; -1: unknown."""

    offset: int


class Settled(Struct, frozen=True, kw_only=True):
    """No batch of an older generation is queued or in flight."""

    generation: int


class TargetFound(Struct, frozen=True, kw_only=True):
    """The target's log: start, end and the leader epoch of its last batch (-1: no batch)."""

    generation: int
    log_start_offset: int
    log_end_offset: int
    last_epoch: int


class TargetNotFound(Struct, frozen=True, kw_only=True):
    """The target's position is unavailable now, because of the target, or of the source that it is
    compared with.
    """

    generation: int
    reason: str
    is_for_source: bool = False


class TargetDiffers(Struct, frozen=True, kw_only=True):
    """The target has the log, but it is not a copy of the source's."""

    generation: int
    reason: str


class SourceChecked(Struct, frozen=True, kw_only=True):
    """The source's log and, for the epoch asked, the largest epoch up to it with its end (-1, -1:
    none known).
    """

    generation: int
    log_start_offset: int
    high_watermark: int
    epoch: int
    epoch_end_offset: int
    # When the source was asked (Unix ms), for its whole answer; -1: just now.
    asked_at_ms: int = -1


class SourceNotFound(Struct, frozen=True, kw_only=True):
    """The source cannot be asked now."""

    generation: int
    reason: str


class CopyReinstated(Struct, frozen=True, kw_only=True):
    """The copy's own records are in quarantine, and the copy is a prefix of the source again; or it
    had none of its own.
    """

    generation: int
    log_end_offset: int
    has_truncated: bool = True


class CopyNotReinstated(Struct, frozen=True, kw_only=True):
    """The copy is unchanged; `advice` says what a person can do, empty if only a new copy helps.
    Not final: a broker did not answer, and the flow asks again.
    """

    generation: int
    advice: str
    is_final: bool = True


class BatchesFetched(Struct, frozen=True, kw_only=True):
    """Whole batches arrived from the source for a fetch from `fetch_offset`."""

    generation: int
    fetch_offset: int
    run: BatchRun
    high_watermark: int
    log_start_offset: int
    asked_at_ms: int = -1


class NothingFetched(Struct, frozen=True, kw_only=True):
    """The source answered without batches."""

    generation: int
    high_watermark: int
    log_start_offset: int
    asked_at_ms: int = -1
    # The answer has records of other partitions, and perhaps had no room for those of this one.
    may_have_more: bool = False


class FetchFailed(Struct, frozen=True, kw_only=True):
    """A fetch failed."""

    generation: int
    trouble: SourceTrouble
    reason: str


class NotEnqueued(Struct, frozen=True, kw_only=True):
    """The queue stayed full for the enqueue timeout: the batches must be fetched again.

    The chain then returns to its earlier end, which is the offset of the fetch; a first batch may
    begin before it.
    """

    generation: int
    offset: int
    epoch: int
    restart_offset: int
    rereads_last_batch: bool = False


class Acknowledged(Struct, frozen=True, kw_only=True):
    """The target has all records below `log_end_offset`; bytes and records are those of the
    acknowledged batches, and of skipped ones.
    """

    generation: int
    log_end_offset: int
    size_bytes: int = 0
    record_count: int = 0
    skipped_bytes: int = 0
    skipped_records: int = 0
    max_timestamp_ms: int = -1
    # The target had some of the batches, and has compared them with its own.
    has_compared: bool = False


class AppendRefused(Struct, frozen=True, kw_only=True):
    """The target refused batches permanently."""

    generation: int
    refusal: TargetRefusal
    reason: str


class TargetWaiting(Struct, frozen=True, kw_only=True):
    """The target cannot take batches now; they are kept and sent again."""

    generation: int
    reason: str


class RetryDue(Struct, frozen=True, kw_only=True):
    """The wait that `RetryLater` asked for is over."""

    generation: int


class LinkTurned(Struct, frozen=True, kw_only=True):
    """The link's record has changed."""

    role: LinkRole
    reason: str


class Pause(Struct, frozen=True, kw_only=True):
    """An operator stops this partition, or another daemon of the link now owns it: then fetched
    batches are dropped.
    """

    reason: str
    is_anothers: bool = False


class Resume(Struct, frozen=True):
    """An operator resumes the partition."""


class SourceLeaderChanged(Struct, frozen=True, kw_only=True):
    """Another leader, or a new epoch of the same one: its history is not known."""

    reason: str


class TombstonesKept(Struct, frozen=True, kw_only=True):
    """The retention of the topic's tombstones at the source, in ms; -1: the topic is not
    compacted.
    """

    kept_ms: int


class ClockWentBack(Struct, frozen=True, kw_only=True):
    """The machine's clock was set back by this time: stored times are too late by it."""

    by_ms: int


class TopicReplaced(Struct, frozen=True, kw_only=True):
    """The topic was deleted at the source, or has another id at one site: deleted and created
    again.
    """

    reason: str


class TopicConflict(Struct, frozen=True, kw_only=True):
    """The topics of the two sites cannot be the same (fewer partitions at the source, ...)."""

    reason: str


class TopicHidden(Struct, frozen=True, kw_only=True):
    """The source's answer does not show whether it has the topic."""

    reason: str


class TopicRefused(Struct, frozen=True, kw_only=True):
    """The target's controller refuses to create the partition."""

    reason: str


class CopyRenewed(Struct, frozen=True):
    """The target's copy was deleted and created anew: it begins where the source's log does."""


class TopicAgrees(Struct, frozen=True):
    """Both sites have the same topic (again)."""


StreamCommand = (
    BatchesFetched
    | SourceLeaderChanged
    | TombstonesKept
    | ClockWentBack
    | NothingFetched
    | FetchFailed
    | NotEnqueued
    | Acknowledged
    | AppendRefused
    | TargetWaiting
)
"""Commands while batches stream; `flow_streaming.py` answers them."""
PositionCommand = (
    Start
    | Settled
    | RetryDue
    | CopyBegins
    | TargetFound
    | TargetNotFound
    | TargetDiffers
    | SourceNotFound
    | SourceChecked
    | CopyReinstated
    | CopyNotReinstated
)
"""Commands until batches stream; `flow_positions.py` answers them."""
Order = (
    LinkTurned | Pause | Resume | TopicReplaced | TopicConflict | TopicHidden | TopicRefused | CopyRenewed | TopicAgrees
)
"""Commands of operators, links and topics; `flow_orders.py` answers them."""
Command = StreamCommand | PositionCommand | Order
