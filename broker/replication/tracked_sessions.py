"""The fetch sessions of followers and of mirrors that must see a change of a partition.

Their fetches wait for the whole session and not under each partition, because a leader of thousands
of partitions has many idle ones. A change marks the partition in the sessions that have
it (`core/fetch_sessions.py`), and the next answer examines only marked partitions. Whether the
answer goes out at once is in the wake-up table (`core/wake_ups.py`).

Callers: broker/replication/purgatory.py, broker/handlers/records/fetch.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Final, NamedTuple

from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSession
from broker.replication.core.wake_ups import Change, SessionNews
from broker.replication.hosted_partition import HostedPartition

# Python 3.11 calls a function for each look at a member of an enumeration
_NOTHING: Final = SessionNews.NOTHING
_AT_ONCE: Final = SessionNews.AT_ONCE
_AT_ONCE_IF_READ: Final = SessionNews.AT_ONCE_IF_READ


class _Watched(NamedTuple):
    state: FetchPartitionState
    hosted: HostedPartition


class TrackedSessions:
    """The sessions, by the partitions that they have."""

    def __init__(self) -> None:
        self._sessions: dict[Hashable, dict[FetchSession, _Watched]] = {}
        self._keys: dict[FetchSession, set[Hashable]] = {}

    def __contains__(self, key: Hashable) -> bool:
        """True when such a session has the partition; cheap, for the hot path."""
        return key in self._sessions

    def watch(self, session: FetchSession, state: FetchPartitionState, hosted: HostedPartition) -> None:
        """The session must see changes of this partition."""
        self._sessions.setdefault(hosted.key, {})[session] = _Watched(state, hosted)
        self._keys.setdefault(session, set()).add(hosted.key)

    def unwatch(self, session: FetchSession) -> None:
        """The session is closed."""
        for key in self._keys.pop(session, ()):
            self._unwatch(key, session)

    def mirrors_of(self, key: Hashable) -> Iterator[FetchSession]:
        """The sessions of mirrors that have the partition."""
        return (session for session in self._sessions.get(key, ()) if session.is_mirrors)

    def of_followers(self, replicas: Collection[int]) -> list[FetchSession]:
        """The sessions of these followers."""
        return [session for session in self._keys if session.follower in replicas]

    def counts(self, hosted: HostedPartition) -> dict[int, tuple[int, int]]:
        """Session id and number of fetches, by follower that follows this leader of this epoch."""
        newest: dict[int, FetchSession] = {}
        for session, watched in self._sessions.get(hosted.key, {}).items():
            if not session.is_followers:
                continue
            state = session.partitions.get(watched.state.key)
            # a fetch under another leader epoch proves nothing about this leadership
            if state is None or watched.hosted is not hosted or state.current_leader_epoch != hosted.state.leader_epoch:
                continue
            known = newest.get(session.follower)
            if known is None or known.used_at_ms <= session.used_at_ms:
                newest[session.follower] = session
        return {follower: (session.session_id, session.epoch) for follower, session in newest.items()}

    def learn(
        self, key: Hashable, change: Change, *, grown_bytes: int, former_end: int | None
    ) -> Iterator[FetchSession]:
        """Mark the partition in the sessions that have it, and return the sessions that are
        answered at once. `former_end` is where the log ended until now, None where it ends
        there still.
        """
        if change.followers is _NOTHING and change.mirrors is _NOTHING:
            return
        for session, watched in tuple(self._sessions.get(key, {}).items()):
            news = change.followers if session.is_followers else change.mirrors
            if news is _NOTHING:
                continue
            partition = watched.state.key
            # the session has forgotten the partition (KIP-227): it is dropped here when next met
            if partition not in session.partitions:
                self._unwatch(key, session)
                self._keys[session].discard(key)
                continue
            state = watched.hosted.state
            # it was settled: until now the follower had everything, so it was in sync up to this
            # change
            if session.mark_changed(partition) and session.is_followers:
                end = state.log_end_offset if former_end is None else former_end
                state.confirm_caught_up(session.follower, log_end_offset=end, at_ms=session.used_at_ms)
            if news is _AT_ONCE:
                # a throttled follower would only be woken to be held back again
                if not (grown_bytes and watched.state.is_throttled):
                    yield session
            elif news is _AT_ONCE_IF_READ and watched.state.lacks_high_watermark(state.high_watermark):
                yield session

    def _unwatch(self, key: Hashable, session: FetchSession) -> None:
        sessions = self._sessions.get(key)
        if sessions is not None and sessions.pop(session, None) is not None and not sessions:
            del self._sessions[key]
