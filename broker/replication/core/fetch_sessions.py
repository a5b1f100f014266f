"""Incremental fetch sessions (KIP-227): the broker remembers a fetcher's partitions, the fetcher
sends only changes.

Pure. `open` turns a request's session fields and partitions into the partitions to read; `answer`
selects the results that a response must have. A session is used by one request at a time (a fetcher
has one in flight). Session ids come from the caller.

A session of a follower or of a mirror also knows which of its partitions are settled: the fetcher
has all records of them that it may have (and a follower is in sync), and has received every change
of them. They are not examined again until `mark_changed` reports a change, so that thousands of
idle partitions cost nothing.

Topics are keyed as the request names them (name before version 13, 16-byte id from then on); a
session never changes that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from wire.protocol.ids import NO_NODE

NO_SESSION = 0  # Kafka's 0: the client asks for a new session
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
UNWATCHED = (1 << 63) - 1
"""High watermark of a fetcher that does not want each new one at once (KIP-1166)."""
EPOCH_MAX = (1 << 31) - 1  # epochs are signed 32-bit numbers

TopicKey = str | bytes
SessionPartition = tuple[TopicKey, int]


class FetchPartitionState(Struct, kw_only=True):
    """The request of a fetcher for one partition, and the last response about it."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    known_high_watermark: int = UNWATCHED
    is_throttled: bool = False
    """True if the last check found records that a throttle delays."""
    reported_high_watermark: int = -1
    reported_log_start_offset: int = -1
    reported_last_stable_offset: int = -1

    @property
    def key(self) -> SessionPartition:
        """Topic and index."""
        return self.topic, self.partition

    def ask(self, other: FetchPartitionState) -> None:
        """Apply the fields of a newer request."""
        self.fetch_offset = other.fetch_offset
        self.partition_max_bytes = other.partition_max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset
        self.known_high_watermark = other.known_high_watermark

    def lacks_high_watermark(self, high_watermark: int) -> bool:
        """True if the fetcher needs this high watermark immediately: it has the records below it,
        and does not know that all in-sync replicas have them.
        """
        # only below the follower's own end: it could not yet serve more to its readers
        return self.known_high_watermark < min(high_watermark, self.fetch_offset)

    def record_answer(
        self, *, high_watermark: int, log_start_offset: int, last_stable_offset: int, is_sent: bool
    ) -> bool:
        """True if the response must contain the partition (a value changed, or `is_sent`); records
        it as answered.
        """
        has_moved = (
            high_watermark != self.reported_high_watermark
            or log_start_offset != self.reported_log_start_offset
            or last_stable_offset != self.reported_last_stable_offset
        )
        self.reported_high_watermark = high_watermark
        self.reported_log_start_offset = log_start_offset
        self.reported_last_stable_offset = last_stable_offset
        return is_sent or has_moved


class FetchSession(Struct, eq=False):
    """One fetcher's partitions in the order in which they are served."""

    session_id: int
    has_topic_ids: bool
    used_at_ms: float
    epoch: int = INITIAL_EPOCH
    follower: int = NO_NODE
    is_mirrors: bool = False
    partitions: dict[SessionPartition, FetchPartitionState] = field(default_factory=dict)

    unsettled: dict[SessionPartition, None] = field(default_factory=dict)
    """The partitions to examine in a session that tracks changes, in the order in which they are
    served.
    """

    @property
    def is_followers(self) -> bool:
        """True when a follower of this site fetches in it."""
        return self.follower != NO_NODE

    @property
    def tracks_changes(self) -> bool:
        """True when only partitions that have changed are examined."""
        return self.is_mirrors or self.follower != NO_NODE

    def serve_last(self, keys: Iterable[SessionPartition]) -> None:
        """Move partitions that just got data to the end, so that a busy one cannot starve the
        others.
        """
        for key in keys:
            if key in self.unsettled:
                del self.unsettled[key]
                # removed and put back: dicts keep the order of insertion
                self.unsettled[key] = None
            elif not self.tracks_changes and (state := self.partitions.pop(key, None)) is not None:
                self.partitions[key] = state

    def ask(self, wanted: Iterable[FetchPartitionState], forgotten: Iterable[SessionPartition]) -> None:
        """Apply the partitions that a request adds and removes."""
        for state in wanted:
            known = self.partitions.get(state.key)
            if known is None:
                self.partitions[state.key] = state
            else:
                known.ask(state)
            if self.tracks_changes:
                self.unsettled[state.key] = None
                # it may not have applied the response: one that makes it truncate its log contains
                # nothing else
                self.partitions[state.key].reported_high_watermark = -1
        for key in forgotten:
            self.partitions.pop(key, None)
            self.unsettled.pop(key, None)

    def to_read(self) -> tuple[FetchPartitionState, ...]:
        """The partitions to examine now."""
        if self.tracks_changes:
            return tuple(self.partitions[key] for key in self.unsettled)
        return tuple(self.partitions.values())

    def settle(self, key: SessionPartition) -> None:
        """The fetcher has everything and got all news."""
        self.unsettled.pop(key, None)

    def unsettle_all(self) -> None:
        """Examine every partition, because something has changed for all of them."""
        for key in self.partitions:
            self.unsettled.setdefault(key)

    def mark_changed(self, key: SessionPartition) -> bool:
        """Note a change of the partition; return True if it was settled until now."""
        if key in self.unsettled or key not in self.partitions:
            return False
        self.unsettled[key] = None
        return True


class FetchPlan(Struct, frozen=True, kw_only=True):
    """The plan for a fetch: an error for the whole request, or the partitions to read."""

    error: ErrorCode = ErrorCode.none
    session_id: int = NO_SESSION
    is_incremental: bool = False
    partitions: Sequence[FetchPartitionState] = ()
    """The partitions to read for a fetch without a session."""
    session: FetchSession | None = None

    def to_read(self) -> Sequence[FetchPartitionState]:
        """The partitions to examine now; for a session they may differ each time."""
        return self.partitions if self.session is None else self.session.to_read()

    @property
    def keeps_unread(self) -> bool:
        """True when partitions that this fetch leaves out are read in the next one."""
        return self.is_incremental and self.session is not None and self.session.tracks_changes

    @property
    def is_empty(self) -> bool:
        """True when nothing is asked for."""
        return not (self.partitions if self.session is None else self.session.partitions)


class FetchSessions:
    """The cache of sessions, bounded by `slots`; a full cache evicts only sessions unused for
    `eviction_ms`.
    """

    def __init__(
        self,
        *,
        slots: int,
        eviction_ms: float,
        new_id: Callable[[], int],
        on_closed: Callable[[FetchSession], None] | None = None,
    ) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.eviction_count = 0
        self._on_closed = on_closed

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions remembered by all sessions."""
        return sum(len(session.partitions) for session in tuple(self._sessions.values()))

    def open(
        self,
        *,
        session_id: int,
        session_epoch: int,
        has_topic_ids: bool,
        wanted: Sequence[FetchPartitionState],
        forgotten: Iterable[SessionPartition],
        now_ms: float,
        follower: int = NO_NODE,
        is_mirrors: bool = False,
    ) -> FetchPlan:
        """The plan for a request with these session fields; `follower` is the broker that sends it,
        if one does, and `is_mirrors` is true when a mirror sends it.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # a full fetch ends the session that it names: its client starts again, and slots are
            # few
            self.close(session_id)
            if session_epoch == FINAL_EPOCH:
                # -1 is a full fetch without a session: tools and old clients
                return FetchPlan(partitions=wanted)
            return self._create(
                wanted, has_topic_ids=has_topic_ids, now_ms=now_ms, follower=follower, is_mirrors=is_mirrors
            )
        session = self._sessions.get(session_id)
        if session is None:
            return FetchPlan(error=ErrorCode.fetch_session_id_not_found)
        # the number shows a repeated or lost request: the client must start a full fetch again
        if session_epoch != session.epoch:
            return FetchPlan(error=ErrorCode.invalid_fetch_session_epoch)
        if session.has_topic_ids != has_topic_ids:
            self.close(session_id)
            return FetchPlan(error=ErrorCode.fetch_session_topic_id_error)
        return self._continue(session, wanted, forgotten, now_ms)

    def close(self, session_id: int) -> None:
        """Forget a session."""
        session = self._sessions.pop(session_id, None)
        if session is not None and self._on_closed is not None:
            self._on_closed(session)

    def _create(
        self,
        wanted: Sequence[FetchPartitionState],
        *,
        has_topic_ids: bool,
        now_ms: float,
        follower: int,
        is_mirrors: bool,
    ) -> FetchPlan:
        # no error when the cache is full: the client gets full answers (KIP-227)
        if not wanted or not self._make_room(now_ms):
            return FetchPlan(partitions=wanted)
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(
            session_id=session_id,
            has_topic_ids=has_topic_ids,
            used_at_ms=now_ms,
            epoch=1,
            follower=follower,
            is_mirrors=is_mirrors,
        )
        session.ask(wanted, ())
        self._sessions[session_id] = session
        return FetchPlan(session_id=session_id, session=session)

    def _make_room(self, now_ms: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        # ordered by use: the first is the one unused for longest
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_at_ms < self._eviction_ms:
            return False
        self.close(oldest.session_id)
        self.eviction_count += 1
        return True

    def _continue(
        self,
        session: FetchSession,
        wanted: Sequence[FetchPartitionState],
        forgotten: Iterable[SessionPartition],
        now_ms: float,
    ) -> FetchPlan:
        session.ask(wanted, forgotten)
        # 1 and not 0, which would ask for a new session
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.used_at_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        return FetchPlan(session_id=session.session_id, is_incremental=True, session=session)
