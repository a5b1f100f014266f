"""The classic high-level consumer: a group that coordinates itself in ZooKeeper, streams on top,
fetchers for each broker below.

Every member registers, computes the same assignment from the same snapshot, and owns the partitions
that it could claim: an owner's node is ephemeral, and creating it makes a member the owner. A
rebalance is a sequence of steps (`STEPS`). After any failure or interruption, the next attempt
begins at the first step and releases the partitions that the last one had claimed, so no partition
ever has two owners.

    read the group, read the brokers -> stop fetchers -> commit -> hook -> release -> assign -> fetch offsets -> claim -> hook -> start

Watches only set a flag; one task rebalances, so twenty joins in a second cost a few rebalances.
While ZooKeeper does not answer, the session may be over without our knowing: reading stops when two
thirds of the session timeout have passed since the last answered request was sent. (kazoo reports
SUSPENDED only when an answer is long overdue, which is too late to count from.)

Known weaknesses of the design: every change rebalances all members, members may see different
snapshots for a moment (then a claim fails and is tried again), and no member knows whether the
others succeeded. The poll-loop consumer (`consumer.py`) has a coordinator instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self

from kazoo.exceptions import KazooException

from clients.classic.classic_settings import OwnershipListener, QuietOwnershipListener, ZooKeeperConsumerOptions
from clients.classic.core.classic_group import (
    STRATEGIES,
    UnequalSubscriptions,
    consumer_id,
    sound_members,
    thread_ids,
    threads_by_topic,
    unusable_filter,
)
from clients.classic.group_snapshots import GroupSnapshots
from clients.classic.member_nodes import MemberNodes
from clients.classic.member_reading import MemberReading, NewClient
from clients.classic.offset_stores import OffsetsRefused
from clients.classic.silence_watch import SilenceWatch
from clients.classic.streams import Stream
from runtime.clock import Clock, SystemClock
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.supervision import in_background
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.sessions import SessionState
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import PartitionKey
from wire.znodes.consumer_znodes import (
    STATIC,
    ConsumerRegistration,
)
from wire.znodes.documents import MalformedZnode

STEPS: Final = (
    "read group",
    "read brokers",
    "stop fetchers",
    "commit",
    "before releasing",
    "release",
    "assign",
    "fetch offsets",
    "claim",
    "before starting",
    "start",
)
FAILURES: Final = (KazooException, KafkaClientError, OffsetsRefused, MalformedZnode)
_log = get_logger("clients.classic.zookeeper_consumer")


class StreamsExist(Exception):
    """A consumer creates its streams only once."""


class RebalanceFailed(Exception):
    """No attempt at a rebalance succeeded."""


class ZooKeeperConsumer:
    """One member of a group in ZooKeeper. `create_streams` returns when the first rebalance is
    over; `close` also ends the ZooKeeper client.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        options: ZooKeeperConsumerOptions,
        new_client: NewClient = KafkaClient,
        *,
        listener: OwnershipListener | None = None,
        clock: Clock | None = None,
        on_step: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self.options = options
        self._listener = listener or QuietOwnershipListener()
        self._clock = clock or SystemClock()
        self._on_step = on_step
        self.consumer_id = options.consumer_id or consumer_id(
            options.group_id,
            host=socket.gethostname(),
            started_ms=self._clock.now_ms(),
            chance=secrets.token_hex(4),
        )
        self._registration: ConsumerRegistration | None = None
        self._reading = MemberReading(
            zookeeper, options, new_client, self._clock, name=self.consumer_id, on_failure=self._break
        )
        self._nodes = MemberNodes(zookeeper, self.consumer_id, options, self._clock)
        self._changed = asyncio.Event()
        self._seen = GroupSnapshots(zookeeper, options.group_id, on_change=self._changed.set)
        self._rebalancing = asyncio.Lock()
        self._needs_registration = False
        self._has_released = False
        self._has_lost_session = False
        self._tasks: list[asyncio.Task[None]] = []
        self._silence = SilenceWatch(
            zookeeper,
            self._clock,
            session_timeout_ms=options.session_timeout_ms,
            on_silence=self._stop_disconnected,
            on_answer=self._changed.set,
        )
        self.rebalances = 0
        self.attempts = 0
        self.failure: Exception | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def owned(self) -> Mapping[PartitionKey, str]:
        """The own partitions and their threads."""
        return dict(self._nodes.claimed)

    @property
    def reading(self) -> list[PartitionKey]:
        """The partitions that the consumer fetches now."""
        return self._reading.places

    @property
    def streams(self) -> list[Stream]:
        """The streams, in the order of `create_streams`."""
        return list(self._reading.streams.values())

    def positions(self) -> dict[PartitionKey, int]:
        """Consumed offsets of the own partitions."""
        return self._reading.positions()

    async def create_streams(self, subscription: Mapping[str, int], *, pattern: str = STATIC) -> list[Stream]:
        """The streams of each topic, or of one regular expression (pattern white_list or
        black_list); once. StreamsExist.

        Raises RebalanceFailed if the first rebalance fails, UnequalSubscriptions if round robin
        cannot include this member, OperationalFailure if another member has this consumer's id,
        ValueError for a filter.
        """
        if self._registration is not None:
            raise StreamsExist("a consumer creates its streams only once; the existing streams continue")
        registration = ConsumerRegistration(
            subscription=dict(subscription), pattern=pattern, timestamp_ms=self._clock.now_ms()
        )
        if reason := unusable_filter(registration):
            raise ValueError(f"filter {reason}")
        self._registration = registration
        for number in range(max(subscription.values())):
            (thread,) = thread_ids(self.consumer_id, number + 1)[number:]
            self._reading.add_stream(thread)
        await self._nodes.register(registration)
        self._zookeeper.on_session(self._on_session)
        loop = asyncio.get_running_loop()
        self._keep(loop.create_task(self._silence.run()))
        await self.rebalance()
        self._keep(loop.create_task(self._watch()))
        if self.options.is_auto_commit:
            self._keep(loop.create_task(self._commit_now_and_then()))
        return self.streams

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.append(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._break(error)

    def _break(self, error: BaseException) -> None:
        """A bug has ended a part of the consumer: its streams end too, because their records would
        be incomplete.
        """
        self.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self._reading.end_streams(self.failure)
        self._tasks.append(in_background("leaving a group", self._leave()))

    async def commit(self) -> None:
        """Commit the consumed offsets, tried again a few times. The store's errors."""
        await self._reading.commit_patiently(self.positions())

    async def close(self) -> None:
        """Stop, commit (with auto commit), and leave the group at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._reading.close_reader()
        self._reading.end_streams(self.failure)
        try:
            if self.options.is_auto_commit and not self._has_lost_session:
                await self._reading.commit_patiently(self._reading.uncommitted)
        except FAILURES as error:
            _log.warning("offsets could not be committed while closing", reason=str(error))
        await self._zookeeper.stop()
        await self._reading.close_clients()

    # Group

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._needs_registration = self._has_lost_session = True
            self._seen.forget_watches()
        if state is SessionState.CONNECTED:
            self._changed.set()

    async def _stop_disconnected(self) -> None:
        if not self._silence.is_silent or self.reading:
            _log.warning("ZooKeeper is unreachable: reading is paused until it answers", group=self.options.group_id)
            await self._reading.stop_fetchers()

    async def _watch(self) -> None:
        """Rebalance after every change; a consumer that cannot continue ends with a failure in all
        of its streams.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._needs_registration:
                    assert self._registration is not None, "create the streams before this call"
                    await self._nodes.register(self._registration)
                    self._needs_registration = False
                await self.rebalance()
            except (*FAILURES, RebalanceFailed, UnequalSubscriptions, OperationalFailure) as error:
                if self._zookeeper.state is not SessionState.CONNECTED:
                    continue  # the next change of the session comes
                self.failure = error
                self._reading.end_streams(error)
                await self._leave()
                return

    async def _leave(self) -> None:
        """A consumer that cannot continue must not keep partitions from the others."""
        try:
            async with self._rebalancing:
                await self._reading.stop_fetchers()
                if self.options.is_auto_commit and not self._has_lost_session:
                    await self._reading.commit_once(self._reading.uncommitted)
                self._reading.uncommitted.clear()
                await self._nodes.release()
                await self._nodes.unregister()
        except FAILURES as error:
            # The registration ends with the session; until then the other members would assign
            # partitions to it.
            _log.warning("a consumer that failed could not leave its group", reason=str(error))

    # Rebalance

    async def rebalance(self) -> None:
        """Attempts until one succeeds. RebalanceFailed after the last; UnequalSubscriptions."""
        async with self._rebalancing:
            reason: Exception | None = None
            for attempt in range(1, self.options.rebalance_attempts_max + 1):
                self.attempts += 1
                try:
                    await self._attempt()
                except UnequalSubscriptions:
                    raise
                except Exception as error:
                    # A hook of the application may raise any error; the error is raised with the
                    # last attempt.
                    reason = error
                    _log.info("a rebalance failed", group=self.options.group_id, attempt=attempt, reason=str(error))
                    await self._reading.stop_fetchers()
                    if self._has_released:
                        with contextlib.suppress(*FAILURES):
                            await self._nodes.release()
                    await asyncio.sleep(self.options.rebalance_backoff_ms / 1000)
                else:
                    self.rebalances += 1
                    return
            raise RebalanceFailed(
                f"{self.consumer_id} could not rebalance in {self.options.rebalance_attempts_max} attempts: {reason}"
            ) from reason

    async def _attempt(self) -> None:
        self._has_released = False
        registered, topics = await self._seen.members()
        registrations = self._sound_members(registered, topics)
        await self._step("read group")
        brokers = await self._seen.brokers()
        await self._step("read brokers")
        if not brokers:
            _log.warning("no broker is registered: waiting for one", group=self.options.group_id)
            return
        await self._reading.stop_fetchers()
        await self._step("stop fetchers")
        self._reading.open(brokers)
        if self._has_lost_session:
            # Other members may have owned the partitions since, and have committed later offsets.
            self._reading.uncommitted.clear()
            self._has_lost_session = False
        if self.options.is_auto_commit and self._reading.uncommitted:
            await self._reading.commit_once(self._reading.uncommitted)
        self._reading.uncommitted.clear()
        await self._step("commit")
        await self._listener.before_releasing(dict(self._nodes.claimed))
        await self._step("before releasing")
        await self._nodes.release()
        self._has_released = True
        await self._step("release")
        threads = threads_by_topic(registrations, topics, excludes_internal=self.options.excludes_internal)
        partitions = {topic: await self._seen.partitions(topic) for topic in threads}
        owners = STRATEGIES[self.options.strategy](threads, partitions)
        own = {place: thread for place, thread in owners.items() if thread in self._reading.streams}
        await self._step("assign")
        assert self._reading.store is not None, "made with the reader"
        offsets = await self._reading.store.fetch(own)
        await self._step("fetch offsets")
        await self._nodes.claim(own)
        await self._step("claim")
        await self._listener.before_starting(self.consumer_id, owners)
        await self._step("before starting")
        self._reading.start(own, offsets)
        idle = set(self._reading.streams) - set(own.values())
        _log.info(
            "rebalanced", group=self.options.group_id, consumer=self.consumer_id, owned=len(own), idle_streams=len(idle)
        )
        await self._step("start")

    def _sound_members(
        self, registered: Mapping[str, ConsumerRegistration], topics: Sequence[str]
    ) -> dict[str, ConsumerRegistration]:
        """Return the members that take part. UnequalSubscriptions when this member is not among
        them.
        """
        sound, skipped = sound_members(
            registered, topics, strategy=self.options.strategy, excludes_internal=self.options.excludes_internal
        )
        if self.consumer_id in skipped:
            raise UnequalSubscriptions(f"{self.consumer_id} gets nothing: {skipped[self.consumer_id]}")
        for consumer, reason in skipped.items():
            _log.warning(
                "a member of the group is left out", group=self.options.group_id, consumer=consumer, reason=reason
            )
        return sound

    async def _step(self, name: str) -> None:
        if self._on_step is not None:
            await self._on_step(name)

    # Offsets

    async def _commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.options.auto_commit_interval_ms / 1000)
            try:
                async with self._rebalancing:
                    await self._reading.commit_once(self.positions())
            except FAILURES as error:
                _log.warning("offsets could not be committed; the next interval tries again", reason=str(error))
