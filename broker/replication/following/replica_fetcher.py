"""Fetch raw batches of the partitions that one other broker leads, in one incremental session.

There is one task and one connection for each source broker. A partition that fails pauses, longer
each time, and never delays the others; an unreachable source is retried with jittered backoff. New
partitions do not wait for a long poll to end: the connection is closed instead.
`follower_append.py` applies the answers to the logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.authentication.inter_broker import Secured, plaintext
from broker.log.core.batch_checks import BatchRejected
from broker.log.core.leader_epochs import EpochEnd
from broker.log.errors import StorageError
from broker.replication.following.core.follower import OutOfRange, Reaction, reaction_to, resume_out_of_range
from broker.replication.following.follower_append import (
    apply_answer,
    flush_if_demanded,
    position_of,
    resume_in_range,
    truncation_wanted,
    where_histories_part,
)
from broker.replication.following.source_session import PARTITION_PAUSE_MS, Asked, FollowedPartition, SourceSession
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from runtime.addresses import HostPort
from runtime.chance import jitter
from runtime.clock import Clock
from runtime.logs import LogLines, get_logger
from runtime.supervision import Supervisor
from wire.batches.record_batch import InvalidBatch
from wire.client.client_errors import KafkaClientError, error_code
from wire.client.requests.broker_requests import OffsetQuery, request_offsets
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.fetch_codec import FetchResponse, PartitionFetched

log = get_logger(__name__)


_EARLIEST, _LATEST = -2, -1


class ReplicaFetcher(SourceSession):
    """The follower of everything that `source` leads."""

    def __init__(
        self,
        source: int,
        replicas: Replicas,
        settings: BrokerSettings,
        clock: Clock,
        *,
        find_address: Callable[[int], HostPort | None],
        broker_epoch: Callable[[], int],
        on_lost: Callable[[int], None],
        secured: Secured = plaintext,
    ) -> None:
        super().__init__(
            source,
            replicas,
            settings,
            clock,
            find_address=find_address,
            broker_epoch=broker_epoch,
            secured=secured,
        )
        self._on_lost = on_lost
        self._failures = 0
        self.is_broken = False
        """True if the last round ended in a defect."""
        self._loops = Supervisor()
        self._loops.start(f"follower of broker {source}", self._run, kind="follower", on_death=self._begin_anew)

    async def stop(self) -> None:
        """Stop fetching."""
        await self._loops.stop()
        self._disconnect("the fetcher stops")

    # --- the loop

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except KafkaClientError as error:
                await self._stand_back(error)

    async def _begin_anew(self, reason: str) -> None:
        self.is_broken = True
        log.error("fetcher failed and restarts", leader=self.source, partitions=len(self), reason=reason)
        self._disconnect("the fetcher restarts")

    async def _round(self) -> None:
        # before the request is made: records that come meanwhile must wake the next wait
        self._has_changed.clear()
        connection = await self._connected() if self._followed else None
        changes = self._changes()
        if connection is None or not self._asked:
            self.is_broken = False
            if changes.forgotten:
                self._session.reset()  # the leader did not see the failure: it would believe that this broker has its answers
            await self._wait_for_work()
            return
        response = await self._fetch(connection, changes)
        if response is not None:
            self._failures = 0
            await self._take(response)
            self.is_broken = False

    async def _wait_for_work(self) -> None:
        """Wait until a partition comes, or the pause of one is over."""
        if not self._followed:
            self._disconnect("no partitions to fetch")
        now_ms = self._clock.monotonic_ms()
        paused = [self._followed[key].resume_at_ms for key in self._paused]
        await self._pause(max(min(paused) - now_ms, 1.0) if paused else None)

    async def _pause(self, pause_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if pause_ms is None else pause_ms / 1000):
                await self._has_changed.wait()
        except TimeoutError:
            return

    async def _stand_back(self, error: KafkaClientError) -> None:
        self._disconnect("a fetch failed")
        self._failures += 1
        # one line for an outage, not one for each try
        if self._failures == 1:
            # a lost fetch connection is early evidence that a broker has died: metadata waits for
            # its successor
            self._on_lost(self.source)
            log.warning("fetching from the leader failed", leader=self.source, partitions=len(self), reason=str(error))
        # 2 to the 10th: beyond it the configured bound counts in any case
        bound_ms = min(PARTITION_PAUSE_MS * 2 ** min(self._failures, 10), self._settings.replica_fetch_backoff_ms)
        await asyncio.sleep(jitter().uniform(0.5, 1.0) * bound_ms / 1000)

    # --- answers

    async def _take(self, response: FetchResponse) -> None:
        now_ms = self._clock.monotonic_ms()
        to_flush: list[HostedPartition] = []
        to_truncate: list[tuple[FollowedPartition, Asked, PartitionFetched]] = []
        out_of_range: list[tuple[FollowedPartition, Asked]] = []
        refusals = LogLines(__name__, "leader refused a partition of a fetch")
        for topic in response.topics:
            name = topic.name if topic.topic_id is None else self._names.get(topic.topic_id, topic.name)
            for fetched in topic.partitions:
                key = name, fetched.partition_index
                followed, asked = self._followed.get(key), self._asked.get(key)
                # due again before any check: a partition that is skipped here must be asked for
                # anew
                self._due[key] = None
                if followed is None or asked is None or asked.topic_id != (topic.topic_id or asked.topic_id):
                    continue
                if position_of(followed.hosted, now_ms=now_ms).place != asked.at.place:
                    continue  # the leadership or the log changed while the answer was on its way
                if fetched.error_code:
                    if self._fail(followed, fetched, refusals) is Reaction.FIND_RANGE:
                        out_of_range.append((followed, asked))
                elif truncation_wanted(followed.hosted, fetched) is not None:
                    to_truncate.append((followed, asked, fetched))
                elif self._append(followed, fetched) and followed.hosted.log.needs_flush:
                    to_flush.append(followed.hosted)
        refusals.write()
        # before the next fetch, whose offset says that the records are here
        for hosted in to_flush:
            await flush_if_demanded(self._replicas, hosted)
        # after the appends: each truncation waits for a disk, and they would wait too
        for followed, asked, fetched in to_truncate:
            await self._truncate(followed, asked, fetched)
        if out_of_range:
            await self._find_range(out_of_range)

    def _append(self, followed: FollowedPartition, fetched: PartitionFetched, *, kept_bytes: int = 0) -> bool:
        hosted = followed.hosted
        if hosted.is_throttled_follower and isinstance(fetched.records, memoryview):
            self._replicas.follower_throttle.record(self._clock.monotonic_ms(), len(fetched.records))
        try:
            apply_answer(self._replicas, hosted, fetched, now_ms=self._clock.now_ms(), kept_bytes=kept_bytes)
        except (BatchRejected, InvalidBatch, StorageError) as error:
            log.warning(
                "records from the leader could not be appended",
                topic=hosted.topic,
                partition=hosted.index,
                leader=self.source,
                log_end_offset=hosted.log.log_end_offset,
                reason=str(error),
            )
            if isinstance(error, StorageError):
                self._replicas.storage_failed(error)
            # the leader believes its answer was used: only a new session makes it send the records
            # again
            self._session.reset()
            followed.pause(self._clock.monotonic_ms(), self._settings.replica_fetch_backoff_ms)
            return False
        hosted.leader_lag = max(fetched.high_watermark - hosted.log.log_end_offset, 0)
        followed.recover()
        return True

    async def _truncate(self, followed: FollowedPartition, asked: Asked, fetched: PartitionFetched) -> None:
        hosted = followed.hosted
        offset = truncation_wanted(hosted, fetched)
        if offset is None or not self._is_as_asked(followed, asked):
            return
        try:
            async with hosted.log.truncation(offset):
                # the leadership may have changed while the recovery point went back
                if not self._is_as_asked(followed, asked):
                    return
                from_offset = where_histories_part(hosted, EpochEnd(*fetched.diverging_epoch))
                kept_bytes = await self._replicas.cuts.keep(hosted.log, from_offset)
                if self._is_as_asked(followed, asked):
                    self._append(followed, fetched, kept_bytes=kept_bytes)
        except StorageError as error:
            self._replicas.storage_failed(error)
            followed.pause(self._clock.monotonic_ms(), self._settings.replica_fetch_backoff_ms)

    def _is_as_asked(self, followed: FollowedPartition, asked: Asked) -> bool:
        hosted = followed.hosted
        is_current = hosted.state.is_follower and self._followed.get(hosted.key) is followed
        return is_current and position_of(hosted, now_ms=self._clock.monotonic_ms()).place == asked.at.place

    def _fail(self, followed: FollowedPartition, fetched: PartitionFetched, refusals: LogLines) -> Reaction:
        code, hosted = error_code(fetched.error_code), followed.hosted
        reaction = reaction_to(code)
        match reaction:
            case Reaction.FIND_RANGE:
                pass
            case Reaction.AWAIT_IMAGE:
                followed.refused_epoch = hosted.state.leader_epoch
            case Reaction.TRY_LATER:
                followed.pause(self._clock.monotonic_ms(), self._settings.replica_fetch_backoff_ms)
        refusals.add(
            topic=hosted.topic,
            partition=hosted.index,
            leader=self.source,
            leader_epoch=hosted.state.leader_epoch,
            code=code.name,
        )
        return reaction

    async def _find_range(self, partitions: list[tuple[FollowedPartition, Asked]]) -> None:
        """Ask where the leader's logs begin and end, and go on from there."""
        bounds: dict[int, dict[PartitionKey, int]] = {}
        try:
            for timestamp in (_EARLIEST, _LATEST):
                queries = {
                    followed.hosted.key: OffsetQuery(timestamp, followed.hosted.state.leader_epoch)
                    for followed, _ in partitions
                }
                listed = await request_offsets(await self._connected(), queries, replica_id=self._settings.node_id)
                bounds[timestamp] = {key: found.offset for key, found in listed.items() if not found.error_code}
        except KafkaClientError as error:
            await self._stand_back(error)
            return
        for followed, asked in partitions:
            hosted = followed.hosted
            # the partition may follow another leader by now, whose log is not the one in the answer
            if not self._is_as_asked(followed, asked):
                continue
            # without both ends it is not known whether to truncate or to restart
            start, end = bounds[_EARLIEST].get(hosted.key), bounds[_LATEST].get(hosted.key)
            if start is None or end is None:
                followed.pause(self._clock.monotonic_ms(), self._settings.replica_fetch_backoff_ms)
                continue
            found = resume_out_of_range(leader_start=start, leader_end=end, log_end_offset=hosted.log.log_end_offset)
            try:
                await self._resume(followed, asked, found)
            except StorageError as error:
                self._replicas.storage_failed(error)
                followed.pause(self._clock.monotonic_ms(), self._settings.replica_fetch_backoff_ms)

    async def _resume(self, followed: FollowedPartition, asked: Asked, found: OutOfRange) -> None:
        hosted = followed.hosted
        async with hosted.log.truncation(hosted.end_of_truncation(found.offset)):
            # the truncation and the copy wait for the disk: leadership and end are compared again
            kept_bytes = 0
            if self._is_as_asked(followed, asked) and not found.must_restart:
                kept_bytes = await self._replicas.cuts.keep(hosted.log, found.offset)
            if self._is_as_asked(followed, asked):
                now_ms = self._clock.now_ms()
                resume_in_range(self._replicas, hosted, found, now_ms=now_ms, kept_bytes=kept_bytes)
