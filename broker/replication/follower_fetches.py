"""Waiting fetches of followers, and which followers' sessions must see a change of a partition.

Followers have a purgatory of their own: they wait for appended records, consumers wait for
committed ones. A follower's fetch waits for its whole session and not under each partition, because
a leader of thousands of partitions has many idle ones. A change marks the partition in the sessions
that have it (`core/fetch_sessions.py`), and the next answer examines only marked partitions.

Callers: broker/replication/replicas.py and other code that changes what followers receive;
broker/handlers/records/fetch.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSession
from broker.replication.hosted_partition import HostedPartition
from broker.replication.purgatory import Purgatory
from runtime.clock import Clock


class _Watched(NamedTuple):
    state: FetchPartitionState
    hosted: HostedPartition


class FollowerFetches(Purgatory):
    """Waiting fetches of followers."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._sessions: dict[Hashable, dict[FetchSession, _Watched]] = {}
        self._keys: dict[FetchSession, set[Hashable]] = {}

    def watch(self, session: FetchSession, state: FetchPartitionState, hosted: HostedPartition) -> None:
        """The session must see changes of this partition."""
        self._sessions.setdefault(hosted.key, {})[session] = _Watched(state, hosted)
        self._keys.setdefault(session, set()).add(hosted.key)

    def unwatch(self, session: FetchSession) -> None:
        """The session is closed."""
        for key in self._keys.pop(session, ()):
            self._unwatch(key, session)

    def notify(self, key: Hashable, grown_bytes: int = 0) -> None:
        """The partition changed, with or without new records; its followers' fetches are looked at
        in this turn of the loop.
        """
        super().notify(key, grown_bytes)
        if key not in self._sessions:
            return
        for session, watched in self._marked(key):
            if not (grown_bytes and watched.state.is_throttled):
                super().notify(session, grown_bytes)

    def counts(self, hosted: HostedPartition) -> dict[int, tuple[int, int]]:
        """Session id and number of fetches, by follower that follows this leader of this epoch."""
        newest: dict[int, FetchSession] = {}
        for session, watched in self._sessions.get(hosted.key, {}).items():
            state = session.partitions.get(watched.state.key)
            if state is None or watched.hosted is not hosted or state.current_leader_epoch != hosted.state.leader_epoch:
                continue
            known = newest.get(session.follower)
            if known is None or known.used_at_ms <= session.used_at_ms:
                newest[session.follower] = session
        return {follower: (session.session_id, session.epoch) for follower, session in newest.items()}

    def mark(self, key: Hashable) -> None:
        """Note a change that followers receive with their next response, whatever that waits
        for.
        """
        for _ in self._marked(key):
            pass

    def high_watermark_moved(self, key: Hashable) -> None:
        """Followers that clients read from get it at once (KIP-392), the others with their next
        answer.
        """
        if key not in self._sessions:
            return
        for session, watched in self._marked(key):
            if watched.state.lacks_high_watermark(watched.hosted.state.high_watermark):
                super().notify(session)

    def _marked(self, key: Hashable) -> Iterable[tuple[FetchSession, _Watched]]:
        sessions = self._sessions.get(key, {})
        for session, watched in tuple(sessions.items()):
            partition = watched.state.key
            if partition not in session.partitions:
                self._unwatch(key, session)
                self._keys[session].discard(key)
                continue
            if session.mark_changed(partition):
                watched.hosted.state.confirm_caught_up(session.follower, at_ms=session.used_at_ms)
            yield session, watched

    def _unwatch(self, key: Hashable, session: FetchSession) -> None:
        sessions = self._sessions.get(key)
        if sessions is not None and sessions.pop(session, None) is not None and not sessions:
            del self._sessions[key]
