"""The mirror's view of a site, as Protocols: the only door between its shells and the Kafka
protocol.

`mirror/sites/kafka_site.py` implements them with the raw-batch client; tests implement them with
sites in memory. A port raises `Unreachable` when a site or broker does not answer; an error that
concerns one partition is returned as that partition's answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode
from msgspec import Struct

from mirror.link.core.topic_plan import Absence, Action
from wire.batches.log_histories import EpochEnd
from wire.protocol.ids import TopicPartition


class Unreachable(Exception):
    """A site or one of its brokers does not answer; the message names it."""


class SourceUnreachable(Unreachable):
    """A request to the target needs the source, and the source cannot be reached."""


class Leader(Struct, frozen=True):
    """A partition's leader: node -1 means none."""

    node_id: int
    epoch: int


class SiteTopic(Struct, frozen=True, kw_only=True):
    """A topic as one site alone sees it."""

    topic_id: UUID
    leaders: Mapping[int, Leader]


class LogEnds(Struct, frozen=True, kw_only=True):
    """Start and end of a partition's log; the epoch of its last batch, -1 when it has none."""

    log_start_offset: int
    end_offset: int
    last_epoch: int


class Refused(Struct, frozen=True):
    """A broker's error about one partition."""

    error: ErrorCode


class Differs(Struct, frozen=True):
    """The target's log cannot be a copy of the source's; the reason names the offset at which they
    differ.
    """

    reason: str


LogAnswer = LogEnds | Refused | Unreachable | Differs
"""A site's answer about one log. `Differs` comes from translate links alone."""


class FetchPart(Struct, frozen=True, kw_only=True):
    """The position at which to fetch one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    generation: int
    """Of the flow that wants the records; a port does not look at it."""


FetchParts = Mapping[TopicPartition, FetchPart]
"""The partitions of a fetch."""


class FetchAnswer(Struct, frozen=True, kw_only=True):
    """The fetched batches of one partition; `records` is a view into the received response, empty
    when there are none.
    """

    key: TopicPartition
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: memoryview
    # Base offsets of batches that a translate link does not carry.
    skipped: frozenset[int] = frozenset()


class AppendPart(Struct, frozen=True, kw_only=True):
    """One partition's next batches with the offsets that the source reported last; without records
    only the reported offsets are sent.
    """

    key: TopicPartition
    topic_id: UUID
    expected_log_end_offset: int
    source_high_watermark: int
    source_log_start_offset: int
    source_seen_at_ms: int
    records: memoryview
    skipped: frozenset[int] = frozenset()


class AppendAnswer(Struct, frozen=True, kw_only=True):
    """The target's answer to an append (`wire/protocol/messages/private.py` has the table of
    codes).
    """

    key: TopicPartition
    error: ErrorCode
    message: str
    log_end_offset: int
    link_epoch: int
    divergence_epoch: int
    divergence_end_offset: int


class SitePort(Protocol):
    """The topics and logs of one site."""

    async def topics(self) -> Mapping[str, SiteTopic]:
        """All topics that this site itself has, by name."""
        ...

    async def configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The configs that are set on the topics themselves; a topic that is gone, or whose configs
        the site hides, is left out.
        """
        ...

    async def log_ends(self, leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogAnswer]:
        """Start and end of each log, read past the site's role (replica id -2)."""
        ...

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[Leader, int]]
    ) -> Mapping[TopicPartition, EpochEnd | Refused | Unreachable]:
        """The end of each partition's epoch at its leader."""
        ...

    async def close(self) -> None:
        """Drop all connections."""
        ...


class SourcePort(SitePort, Protocol):
    """The site that topics come from."""

    async def absences(self, names: Sequence[str]) -> Mapping[str, Absence]:
        """The reasons why the site did not list these topics: authorization errors appear only in a
        request by name.
        """
        ...


BRIEF_WAIT_MS: Final = 25


class FetchPort(Protocol):
    """The connection of one fetcher to its source broker."""

    async def fetch(
        self,
        node_id: int,
        parts: FetchParts,
        *,
        changed: Collection[TopicPartition] | None = None,
        is_brief: bool = False,
    ) -> Sequence[FetchAnswer]:
        """One long-polling fetch as an ordinary consumer; only committed batches come. A brief one
        waits at most BRIEF_WAIT_MS for records. Unreachable on a lost connection.

        `changed` names the partitions whose part may differ from that in this port's last fetch;
        None: any of them.
        """
        ...

    async def close(self) -> None:
        """Drop the connection."""
        ...


class AppendPort(Protocol):
    """The connection of one producer to the target's brokers."""

    async def append(
        self, node_id: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]
    ) -> Sequence[AppendAnswer]:
        """Append; calls made one after the other reach the broker in that order. Unreachable on a
        lost connection.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class IdlePartition(NamedTuple):
    """A partition without new records that enters a session of reports, with its ends."""

    key: TopicPartition
    topic_id: UUID
    log_end_offset: int
    source_high_watermark: int


class ReportAnswer(NamedTuple):
    """The target's answer to a report: the session, and the numbers of the partitions that are not
    as reported. Any error ends the session.
    """

    error: ErrorCode
    session_id: int
    ended: Sequence[int]


class ReportPort(Protocol):
    """The connection for reports about idle partitions to the target's brokers."""

    async def report(
        self,
        node_id: int,
        *,
        link: str,
        link_epoch: int,
        session_id: int,
        source_seen_at_ms: int,
        removed: Sequence[int],
        added: Sequence[IdlePartition],
    ) -> ReportAnswer:
        """Report as of when (Unix ms) the source has no new records of the session's partitions;
        session 0 begins one. Unreachable on a lost connection.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


NEEDS_ALL_REPORTS: Final = ErrorCode.offset_not_available.name
"""The answer of a broker that took a report, and leads partitions of a sync link of which it needs
reports.
"""


class ProgressPort(Protocol):
    """The connection for reports of the target's progress to the source's brokers."""

    async def report(
        self, node_id: int, *, link: str, link_epoch: int, acknowledged: Mapping[TopicPartition, int]
    ) -> str:
        """Report; empty when it was accepted and the broker needs nothing else, NEEDS_ALL_REPORTS,
        or why it was refused. Unreachable on a lost connection.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...


class TransactionalProducer(NamedTuple):
    """The identity of a transactional id's producer."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int


class ProducerUpdates(NamedTuple):
    """The changes since the last call, by transactional id; None: the id is removed. `is_all`: the
    read reached the end.
    """

    producers: Mapping[str, TransactionalProducer | None]
    is_all: bool


class ProducersOfSource(Protocol):
    """The source's transactional producers, as its coordinators write them down."""

    async def news(self) -> ProducerUpdates:
        """The changes from one response of each broker."""
        ...

    def begin_anew(self) -> None:
        """Let the next `news` return all producers again."""
        ...


class ProducersOfTarget(Protocol):
    """Coordinators of a passive site."""

    async def carry(
        self, producers: Mapping[str, TransactionalProducer], *, link: str, link_epoch: int
    ) -> Mapping[str, ErrorCode]:
        """Send them; returns the outcome of each that was sent. Raises Unreachable when the site
        does not answer.
        """
        ...


class EndToKeep(Struct, frozen=True, kw_only=True):
    """One partition of a copy: its leader keeps the records from `first_offset` on."""

    topic_id: UUID
    leader: Leader
    first_offset: int


class TruncatedCopy(Struct, frozen=True, kw_only=True):
    """The outcome for one copy: its end and the entry with its former end, or the reason why it did
    not change.
    """

    log_end_offset: int = -1
    entry: str = ""
    refusal: str = ""


class QuarantinePort(Protocol):
    """The brokers of the target, which copy records to quarantine before they are deleted or
    truncated.
    """

    async def keep(
        self, ends: Mapping[TopicPartition, EndToKeep], *, link: str, link_epoch: int, reason: str
    ) -> Mapping[TopicPartition, str]:
        """Have each leader keep the end of its log; empty where it is on disk, else why not. Raises
        Unreachable when a broker does not answer.
        """
        ...

    async def keep_and_truncate(
        self, ends: Mapping[TopicPartition, EndToKeep], *, link: str, link_epoch: int, reason: str
    ) -> Mapping[TopicPartition, TruncatedCopy]:
        """Have each leader keep the end of its log and then truncate the log there. Raises
        Unreachable when a broker does not answer: some may have done it, and a repetition does no
        harm.
        """
        ...


class TopicActor(Protocol):
    """The target's controller, acting in the link's name."""

    async def act(self, actions: Sequence[Action], *, link: str, link_epoch: int) -> Sequence[str]:
        """Do actions of one kind, each of another topic, at once; for each of them empty when done
        (or done before), else why it was refused. Raises Unreachable when no controller answers:
        some may be done.
        """
        ...

    async def close(self) -> None:
        """Drop the connections."""
        ...
