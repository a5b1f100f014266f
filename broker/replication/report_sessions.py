"""Sessions in which a mirror reports that the source has no new records of many partitions.

A report moves `SourceSeen.seen_at_ms` of each partition of the session, if the partition is still
as it was when it entered: led here without a break, with the same end, in the same role. A
partition that has changed leaves the session, and the mirror reports about it with MirrorAppend.
The whole pass reads a few attributes of each partition, because it runs every second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.metadata.core.access import mirror_error
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.partition_state import ReplicaRole
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions

SESSIONS_MAX: Final = 1_000
UNUSED_MS_MAX: Final = 60_000.0
"""Time (ms) after which the broker forgets a session without reports."""


class NewMember(NamedTuple):
    """A partition that a mirror adds; `hosted` is None if this broker does not have it."""

    hosted: HostedPartition | None
    log_end_offset: int
    source_high_watermark: int


class _Member(NamedTuple):
    hosted: HostedPartition
    led_since_epoch: int
    log_end_offset: int
    source_high_watermark: int


class ReportSession(Struct):
    """One mirror's session with this broker."""

    session_id: int
    link: str
    link_epoch: int
    image: ClusterImage
    """The image by which the roles of the topics were checked."""
    used_at_ms: float
    next_number: int = 0
    members: dict[int, _Member] = field(default_factory=dict)


class ReportSessions:
    """See the module. One event loop only."""

    def __init__(self, partitions: HostedPartitions, *, new_id: Callable[[], int]) -> None:
        self._partitions = partitions
        self._new_id = new_id
        # The one that was used last comes last.
        self._sessions: dict[int, ReportSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, image: ClusterImage, *, link: str, link_epoch: int) -> ReportSession:
        """A new session; the one that has been unused for the longest time gives way if there are
        too many.
        """
        now_ms = self._partitions.clock.monotonic_ms()
        for session in tuple(self._sessions.values()):
            if len(self._sessions) < SESSIONS_MAX and now_ms - session.used_at_ms < UNUSED_MS_MAX:
                break
            del self._sessions[session.session_id]
        session_id = self._new_id()
        while session_id in self._sessions or session_id <= 0:
            session_id = self._new_id()
        session = ReportSession(session_id, link, link_epoch, image, now_ms)
        self._sessions[session_id] = session
        return session

    def find(self, session_id: int, *, link: str, link_epoch: int) -> ReportSession | None:
        """The session; None if there is none, or if it is of another link or epoch."""
        session = self._sessions.pop(session_id, None)
        if session is None or (session.link, session.link_epoch) != (link, link_epoch):
            return None
        session.used_at_ms = self._partitions.clock.monotonic_ms()
        self._sessions[session_id] = session
        return session

    def report(
        self,
        session: ReportSession,
        image: ClusterImage,
        *,
        seen_at_ms: int,
        removed: Iterable[int],
        added: Iterable[NewMember],
    ) -> list[int]:
        """Apply one report, after the changes of the session's partitions; return the numbers of
        the partitions that have left the session because they are not as reported, and of those
        that left it at once.
        """
        numbers = self._add(session, added)
        # After that, because a partition may leave between its entry and the report.
        _remove(session, removed)
        ended = [number for number in numbers if number not in session.members]
        if numbers or image is not session.image:
            unmirrored = self._unmirrored(session, image)
            ended += unmirrored
            _remove(session, unmirrored)
        changed = self._move(session, seen_at_ms)
        _remove(session, changed)
        return ended + changed

    def _move(self, session: ReportSession, seen_at_ms: int) -> list[int]:
        """Move the time of the report in each partition that is as reported; returns the others."""
        here = self._partitions.hosted
        others = []
        for number, (hosted, epoch, log_end_offset, source_high_watermark) in session.members.items():
            log, state = hosted.log, hosted.state
            source = log.source
            if (
                log.log_end_offset == log_end_offset
                and source.high_watermark == source_high_watermark
                and state.led_since_epoch == epoch
                and state.role is ReplicaRole.LEADER
                and here.get(hosted.key) is hosted
            ):
                source.seen_at_ms = seen_at_ms
            else:
                others.append(number)
        return others

    def _add(self, session: ReportSession, added: Iterable[NewMember]) -> list[int]:
        """Number the partitions, and add those that are here; returns the numbers."""
        numbers = []
        for hosted, log_end_offset, source_high_watermark in added:
            if hosted is not None:
                epoch = hosted.state.led_since_epoch
                session.members[session.next_number] = _Member(hosted, epoch, log_end_offset, source_high_watermark)
            numbers.append(session.next_number)
            session.next_number += 1
        return numbers

    def _unmirrored(self, session: ReportSession, image: ClusterImage) -> list[int]:
        """The partitions of topics that the link's mirror may not change by this image."""
        topics = {member.hosted.topic for member in session.members.values()}
        allowed = {
            topic
            for topic in topics
            if mirror_error(image, topic, link_name=session.link, link_epoch=session.link_epoch) is ErrorCode.none
        }
        session.image = image
        if topics == allowed:
            return []
        return [number for number, member in session.members.items() if member.hosted.topic not in allowed]


def _remove(session: ReportSession, numbers: Iterable[int]) -> None:
    for number in numbers:
        session.members.pop(number, None)
