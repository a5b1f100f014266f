"""The session of a follower with one other broker: its partitions, the content of the next fetch,
and the connection.

Caller: broker/replication/following/replica_fetcher.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from broker.authentication.inter_broker import Secured, plaintext
from broker.replication.following.core.follower import Position
from broker.replication.following.follower_append import (
    position_of,
)
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from runtime.addresses import HostPort
from runtime.chance import jitter
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError, Unreachable, error_code
from wire.client.connection import Connection, ConnectionOptions, open_connection
from wire.client.requests.broker_requests import request_fetch
from wire.client.requests.fetch_requests import FetchRequest, ForgottenTopic, PartitionToFetch, TopicToFetch
from wire.client.session_state import FetchSession, SessionRequest
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse

log = get_logger(__name__)

PARTITION_PAUSE_MS: Final = 20.0
"""First pause of a partition after an error; a leader that does not know its leadership yet is
asked again soon.
"""


INTERRUPTION_GRACE_MS: Final = 10.0  # assignments come in bursts: one new request for all of them


THROTTLE_PAUSE_MS: Final = 100.0


SWEEP_MS: Final = 10_000.0
"""Interval (ms) at which every partition is examined, for changes that come without a response
(retention moves a log's start).
"""


SessionKey = tuple[UUID, int]


class FollowedPartition(Struct, eq=False):
    """A followed partition, and the reason if it is not fetched now."""

    hosted: HostedPartition
    failures: int = 0
    resume_at_ms: float = 0.0
    refused_epoch: int = -1
    """Leader epoch that the leader refused as old: the follower does not fetch under it again."""

    def may_fetch(self, now_ms: float) -> bool:
        """True when it is to be part of the next request."""
        state = self.hosted.state
        return state.is_follower and now_ms >= self.resume_at_ms and state.leader_epoch > self.refused_epoch

    def pause(self, now_ms: float, pause_ms_max: float) -> None:
        """Leave the partition out for a while after a failure, longer each time."""
        self.failures += 1
        # 2 to the 10th times 20 ms is beyond any bound in use
        pause_ms = min(PARTITION_PAUSE_MS * 2 ** min(self.failures - 1, 10), pause_ms_max)
        self.resume_at_ms = now_ms + pause_ms * jitter().uniform(0.5, 1.0)

    def recover(self) -> None:
        """An answer was good."""
        self.failures = 0


class Asked(NamedTuple):
    """The request of the session for one partition, under the topic id of that time."""

    topic_id: UUID
    at: Position


class SourceSession:
    """The connection to `source`, and the session in which its partitions are fetched."""

    def __init__(
        self,
        source: int,
        replicas: Replicas,
        settings: BrokerSettings,
        clock: Clock,
        *,
        find_address: Callable[[int], HostPort | None],
        broker_epoch: Callable[[], int],
        secured: Secured = plaintext,
    ) -> None:
        self.source = source
        self._replicas = replicas
        self._settings = settings
        self._clock = clock
        self._find_address = find_address
        self._broker_epoch = broker_epoch
        self._secured = secured
        # the leader's log shows which follower a connection belongs to
        self._options = ConnectionOptions(
            client_id=f"broker-{settings.node_id}-follows-{source}",
            connect_timeout_ms=settings.replica_socket_timeout_ms,
            request_timeout_ms=settings.replica_socket_timeout_ms,
        )
        self._connection: Connection | None = None
        self._session: FetchSession[SessionKey, Position] = FetchSession()
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._due: dict[PartitionKey, None] = {}
        """Partitions whose entry in the request may have to change; the others cost nothing."""
        self._paused: set[PartitionKey] = set()
        self._asked: dict[PartitionKey, Asked] = {}
        """The requests of the session, by partition."""
        self._swept_at_ms = 0.0
        self._names: dict[UUID, str] = {}
        self._has_changed = asyncio.Event()
        self._is_waiting = False
        """True while a fetch waits for its response."""
        self._is_given_up = False
        """True if the fetcher stopped waiting for the latest fetch."""
        self._interruption: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partitions: Iterable[HostedPartition]) -> None:
        """Fetch these too, or with their new leader epoch."""
        for hosted in partitions:
            # A new leader epoch gets a new object, so that failures and refusals under the old one
            # do not count.
            self._followed[hosted.key] = FollowedPartition(hosted)
            self._names[hosted.topic_uuid] = hosted.topic
            self._due[hosted.key] = None
            self._has_changed.set()
        if self._is_waiting and self._has_changed.is_set() and self._interruption is None:
            loop = asyncio.get_running_loop()
            self._interruption = loop.call_later(INTERRUPTION_GRACE_MS / 1000, self._interrupt)

    def leave(self, key: PartitionKey) -> None:
        """Stop fetching this partition."""
        if self._followed.pop(key, None) is not None:
            self._due[key] = None

    def look_again(self, key: PartitionKey) -> None:
        """Check if the next request must change for this partition."""
        if key in self._followed:
            self._due[key] = None

    def lag(self) -> int:
        """Number of records that the partition with the greatest lag lacks, by its leader's last
        response.
        """
        return max((followed.hosted.leader_lag for followed in tuple(self._followed.values())), default=0)

    def failing_count(self) -> int:
        """Partitions whose last answer could not be used."""
        return sum(followed.failures > 0 for followed in tuple(self._followed.values()))

    # --- requests

    def _changes(self) -> SessionRequest[SessionKey, Position]:
        """The next request: partitions whose entries differ from those of the previous request."""
        now_ms = self._clock.monotonic_ms()
        if self._session.is_new:
            self._asked.clear()
            # ids of deleted topics go with the session that might still name them
            self._names = {followed.hosted.topic_uuid: key[0] for key, followed in self._followed.items()}
        if self._session.is_new or now_ms - self._swept_at_ms > SWEEP_MS:
            self._swept_at_ms = now_ms
            self._due.update(dict.fromkeys(self._followed))
        # Paused partitions are examined each time, because their pause may have ended.
        due, self._due = [*self._due, *self._paused], {}
        named: dict[SessionKey, Position] = {}
        forgotten: set[SessionKey] = set()
        for key in due:
            followed, asked = self._followed.get(key), self._asked.get(key)
            wanted: Asked | None = None
            if followed is not None and followed.may_fetch(now_ms) and not self._is_throttled(followed, now_ms):
                wanted = Asked(followed.hosted.topic_uuid, position_of(followed.hosted, now_ms=now_ms))
            self._keep_paused(key, followed, now_ms)
            # another topic id is another topic: the session must forget the old one by its id
            if asked is not None and (wanted is None or wanted.topic_id != asked.topic_id):
                forgotten.add((asked.topic_id, key[1]))
                del self._asked[key]
            # Unchanged partitions are not named, which is the purpose of the session (KIP-227).
            if wanted is not None and wanted != asked:
                self._asked[key] = wanted
                named[wanted.topic_id, key[1]] = wanted.at
        return self._session.next_changes(named, frozenset(forgotten))

    def _is_throttled(self, followed: FollowedPartition, now_ms: float) -> bool:
        """True if the partition must wait because of the throttle; it is examined again soon."""
        hosted = followed.hosted
        if hosted.is_in_sync or not hosted.is_throttled_follower:
            return False
        if not self._replicas.follower_throttle.is_exceeded(now_ms):
            return False
        followed.resume_at_ms = now_ms + THROTTLE_PAUSE_MS
        return True

    def _keep_paused(self, key: PartitionKey, followed: FollowedPartition | None, now_ms: float) -> None:
        if followed is not None and followed.resume_at_ms > now_ms:
            self._paused.add(key)
        else:
            self._paused.discard(key)

    def _disconnect(self, reason: str) -> None:
        self._session.reset()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            # a session belongs to a connection here: the leader may be another process
            self._session.reset()
            address = self._find_address(self.source)
            if address is None:
                raise Unreachable("the broker is not registered", node=f"node {self.source}")
            self._connection = await open_connection(address, self._secured(self._options, address))
        return self._connection

    async def _fetch(
        self, connection: Connection, changes: SessionRequest[SessionKey, Position]
    ) -> FetchResponse | None:
        """One fetch; None if new partitions replaced the request, or if its session is lost."""
        request = self._request(changes)
        self._is_waiting, self._is_given_up = True, False
        try:
            # awaited here and not in a task: each turn of the loop is a turn that producers wait
            response = await request_fetch(connection, request)
        except BaseException as error:
            # After any failure the leader may have advanced the session, so start a new one.
            self._session.reset()
            if self._is_given_up and isinstance(error, KafkaClientError):
                return None
            raise
        finally:
            self._is_waiting = False
            if self._interruption is not None:
                self._interruption.cancel()
                self._interruption = None
        if self._is_given_up:
            return None
        if response.error_code:
            log.info("fetch session restarts", leader=self.source, code=error_code(response.error_code).name)
            self._session.reset()
            return None
        self._session.answered(response.session_id)
        return response

    def _interrupt(self) -> None:
        """The fetch that is under way has not been answered in time: there is more to ask for."""
        self._interruption = None
        self._is_given_up = True
        self._disconnect("new partitions to fetch")

    def _request(self, session: SessionRequest[SessionKey, Position]) -> FetchRequest:
        settings = self._settings
        topics: dict[UUID, list[PartitionToFetch]] = {}
        for (topic_id, index), at in session.named.items():
            topics.setdefault(topic_id, []).append(
                PartitionToFetch(
                    partition_index=index,
                    fetch_offset=at.fetch_offset,
                    partition_max_bytes=settings.replica_fetch_bytes_max,
                    current_leader_epoch=at.leader_epoch,
                    last_fetched_epoch=at.last_fetched_epoch,
                    log_start_offset=at.log_start_offset,
                    high_watermark=at.high_watermark,
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in session.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        return FetchRequest(
            [TopicToFetch(self._names[topic_id], topic_id, partitions) for topic_id, partitions in topics.items()],
            max_wait_ms=settings.replica_fetch_wait_ms_max,
            min_bytes=settings.replica_fetch_bytes_min,
            max_bytes=settings.replica_fetch_response_bytes_max,
            replica_id=settings.node_id,
            replica_epoch=self._broker_epoch(),
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            forgotten_topics=[
                ForgottenTopic(self._names[topic_id], topic_id, indexes) for topic_id, indexes in forgotten.items()
            ],
        )
