"""Sessions in which a mirror reports that the source has no new records of many partitions.

A report moves the time that the `SourceSeen` of all partitions of the session share. It is right
about a partition that is as it was when it entered: led here without a break, with the same end, in
the same role. Each report looks at a part of the partitions, and at all of them when the image has
changed. A partition that has changed leaves the session, and the mirror reports about it with
MirrorAppend. Until then a later time does no harm: the source's high watermark stays beside it, so
a log that has lost its end shows what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.log.source_seen import SharedTime
from broker.metadata.core.access import mirror_error
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.partition_state import ReplicaRole
from broker.replication.hosted_partition import HostedPartition
from broker.replication.hosted_partitions import HostedPartitions

SESSIONS_MAX: Final = 1_000
REPORTS_A_PASS: Final = 5
"""The number of reports in which the session looks at each of its partitions."""
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
    reports: int = 0
    seen_at: SharedTime = field(default_factory=lambda: SharedTime(0))
    members: dict[int, _Member] = field(default_factory=dict)


class ReportSessions:
    """The sessions of all mirrors at this broker. One event loop only."""

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
        session.reports += 1
        if numbers or image is not session.image:
            session.image = image
            changed = self._changed(session, session.members)
        else:
            phase = session.reports % REPORTS_A_PASS
            changed = self._changed(session, [one for one in session.members if one % REPORTS_A_PASS == phase])
        _remove(session, changed)
        # Last: partitions that have left keep the time of the report before.
        session.seen_at.at_ms = seen_at_ms
        return ended + changed

    def _add(self, session: ReportSession, added: Iterable[NewMember]) -> list[int]:
        """Number the partitions, and add those that are here; returns the numbers."""
        numbers = []
        for hosted, log_end_offset, source_high_watermark in added:
            if hosted is not None:
                epoch, source = hosted.state.led_since_epoch, hosted.log.source
                # Before the first look: a time beside another end would be wrong.
                if (hosted.log.log_end_offset, source.high_watermark) == (log_end_offset, source_high_watermark):
                    session.members[session.next_number] = _Member(hosted, epoch, log_end_offset, source_high_watermark)
                    source.shared = session.seen_at
            numbers.append(session.next_number)
            session.next_number += 1
        return numbers

    def _changed(self, session: ReportSession, numbers: Iterable[int]) -> list[int]:
        """Those of the partitions that are not as reported."""
        image, here, leader = session.image, self._partitions.hosted, ReplicaRole.LEADER
        allowed: dict[str, bool] = {}
        others = []
        for number in numbers:
            hosted, epoch, log_end_offset, source_high_watermark = session.members[number]
            log, state, source = hosted.log, hosted.state, hosted.log.source
            is_allowed = allowed.get(hosted.topic)
            if is_allowed is None:
                error = mirror_error(image, hosted.topic, link_name=session.link, link_epoch=session.link_epoch)
                is_allowed = allowed[hosted.topic] = error is ErrorCode.none
            if not (
                is_allowed
                and log.log_end_offset == log_end_offset
                and source.shared is session.seen_at
                and source.high_watermark == source_high_watermark
                and state.led_since_epoch == epoch
                and state.role is leader
                and here.get(hosted.key) is hosted
            ):
                others.append(number)
        return others


def _remove(session: ReportSession, numbers: Iterable[int]) -> None:
    for number in numbers:
        member = session.members.pop(number, None)
        if member is not None:
            member.hosted.log.source.leave(session.seen_at)
