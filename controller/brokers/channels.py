"""One channel per broker: sends changes in order until the broker has them.

A channel sends one batch at a time, built from the cluster at that moment, so batches neither
overtake each other nor pile up. A new or restarted broker gets the whole image, and so does a
broker that refused or may have missed a batch. A channel ends when its broker's registration ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
from tenacity import RetryCallState

from controller.brokers.images import PendingChanges, TopicMessages
from controller.core.commands import DeletionsAnswered
from controller.core.decisions import Publish
from controller.core.state.cluster import Cluster
from controller.core.state.site_values import Broker
from controller.metrics import ControllerMetrics
from runtime.grpc_server import Dial
from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.supervision import not_broken_off
from wire.control.broker_pb2 import ControlBatch, ControlReply
from wire.control.clients import BrokerControlChannels
from wire.protocol.ids import TopicPartition

RETRY_INITIAL_MS = 50
RETRY_MAX_MS = 1000

_log = get_logger(__name__)

AnswerListener = Callable[[DeletionsAnswered], Awaitable[None]]


class BrokerChannel:
    """Sends control batches to one registration of one broker."""

    def __init__(
        self,
        broker: Broker,
        *,
        cluster: Callable[[], Cluster],
        connections: BrokerControlChannels,
        on_answer: AnswerListener,
        on_end: Callable[[asyncio.Task[None]], None],
        metrics: ControllerMetrics,
        topics: TopicMessages,
        apply_timeout_ms: int,
    ) -> None:
        self.broker = broker
        self._apply_timeout_s = apply_timeout_ms / 1000
        self._topics = topics
        self._cluster = cluster
        self._connections = connections
        self._on_answer = on_answer
        self._metrics = metrics
        self._pending = PendingChanges()
        self._wanted_version = 0
        self._applied_version = 0
        self._has_news = asyncio.Event()
        self._has_applied = asyncio.Condition()
        # a cancelled gRPC call must not look like the regular end of the channel
        self._task = asyncio.get_running_loop().create_task(not_broken_off(self._run))
        self._task.add_done_callback(on_end)

    def publish(self, publish: Publish, *, version: int) -> None:
        """Queue a change."""
        self._pending.add(publish)
        self._wake(version)

    def publish_image(self, *, version: int) -> None:
        """Queue the whole image."""
        self._pending.add_image()
        self._wake(version)

    def _wake(self, version: int) -> None:
        self._wanted_version = version
        self._has_news.set()

    @property
    def wanted_version(self) -> int:
        """The latest version that was queued for this broker."""
        return self._wanted_version

    async def wait_applied(self, version: int) -> None:
        """Return when the broker has applied everything up to `version`, or is gone."""
        async with self._has_applied:
            await self._has_applied.wait_for(lambda: self._applied_version >= version or self._task.done())

    async def close(self) -> None:
        """Stop sending, and release the callers of `wait_applied`."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        async with self._has_applied:
            self._has_applied.notify_all()

    async def _run(self) -> None:
        while True:
            await self._has_news.wait()
            # cleared before the delivery, so that a change published during the delivery starts
            # another one
            self._has_news.clear()
            await self._deliver()

    async def _deliver(self) -> None:
        """Send what is pending until the broker has it; every further attempt carries the whole
        image.
        """
        retrying = jittered_backoff(
            retry_on=grpc.aio.AioRpcError,
            initial_ms=RETRY_INITIAL_MS,
            max_ms=RETRY_MAX_MS,
            before_sleep=self._on_failure,
        )
        async for attempt in retrying:
            with attempt:
                await self._send()

    def _on_failure(self, state: RetryCallState) -> None:
        # the broker may or may not have applied the batch: only the whole image is right in both
        # cases
        self._pending.add_image()
        self._metrics.record_push_failure()
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, grpc.aio.AioRpcError):
            _log.warning(
                "broker did not apply a batch",
                broker=self.broker.node_id,
                code=error.code().name,
                details=error.details(),
                attempt=state.attempt_number,
            )

    async def _send(self) -> None:
        pending, version = self._pending, self._wanted_version
        if not pending.has_news:
            return
        batch = pending.batch(
            self._cluster(), node_id=self.broker.node_id, broker_epoch=self.broker.epoch, topics=self._topics
        )
        self._pending = PendingChanges()
        try:
            address = self.broker.registration.grpc_address
            reply = await self._connections.apply(address, batch, timeout_s=self._apply_timeout_s)
        except BaseException:
            # the image of the next attempt names existing topics only: a deletion must be named in
            # it
            self._pending.deleted_topics |= pending.deleted_topics
            raise
        async with self._has_applied:
            self._applied_version = version
            self._has_applied.notify_all()
        await self._answer(batch, reply)

    async def _answer(self, batch: ControlBatch, reply: ControlReply) -> None:
        if reply.failures:
            self._metrics.record_broker_failures(len(reply.failures))
            for failure in reply.failures:
                _log.error(
                    "broker could not apply the state of a partition",
                    broker=self.broker.node_id,
                    partition=f"{failure.topic}-{failure.partition}",
                    error_code=failure.error_code,
                )
        if batch.deleted_topics:
            # a topic may have been created again under the name of the deleted one: failures of the
            # new topic are not failures of the deletion
            deleted_names = {deleted.name for deleted in batch.deleted_topics} - {topic.name for topic in batch.topics}
            await self._on_answer(
                DeletionsAnswered(
                    node_id=self.broker.node_id,
                    broker_epoch=self.broker.epoch,
                    topic_ids=tuple(deleted.topic_id for deleted in batch.deleted_topics),
                    failed=tuple(
                        TopicPartition(failure.topic, failure.partition)
                        for failure in reply.failures
                        if failure.topic in deleted_names
                    ),
                )
            )


class BrokerChannels:
    """The channels to all living brokers of one tenure."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        *,
        on_answer: AnswerListener,
        metrics: ControllerMetrics,
        dial: Dial,
        apply_timeout_ms: int,
    ) -> None:
        self._apply_timeout_ms = apply_timeout_ms
        self._cluster = cluster
        self._on_answer = on_answer
        self._metrics = metrics
        self._connections = BrokerControlChannels(dial)
        self._topics = TopicMessages()
        self._channels: dict[int, BrokerChannel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._version = 0
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def raise_failure(self) -> None:
        """Wait until a channel ends with a defect of this program, and raise that error. Without
        this, a broker would get no batches, and no log line would report it.
        """
        await self._failure

    def follow_membership(self) -> None:
        """Open a channel to each new registration, and close the channel of each ended
        registration.
        """
        brokers = self._cluster().brokers
        for node, channel in list(self._channels.items()):
            if node not in brokers or brokers[node].epoch != channel.broker.epoch:
                del self._channels[node]
                task = asyncio.get_running_loop().create_task(channel.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        for node, broker in brokers.items():
            if node not in self._channels and broker.registration.grpc_address:
                self._channels[node] = BrokerChannel(
                    broker,
                    cluster=self._cluster,
                    connections=self._connections,
                    on_answer=self._on_answer,
                    on_end=self._on_end,
                    metrics=self._metrics,
                    topics=self._topics,
                    apply_timeout_ms=self._apply_timeout_ms,
                )

    def publish(self, publish: Publish) -> None:
        """Send a change to every living broker."""
        self._version += 1
        for channel in self._channels.values():
            channel.publish(publish, version=self._version)

    def publish_image(self, node_ids: tuple[int, ...]) -> None:
        """Send the whole image to these brokers."""
        self._version += 1
        for node in node_ids:
            # a broker that was lost in the same decision has no channel
            if node in self._channels:
                self._channels[node].publish_image(version=self._version)

    async def wait_applied(self, *, timeout_ms: float) -> bool:
        """Wait until every living broker has applied all changes published so far; False after the
        timeout.
        """
        version = self._version
        waiting = [channel.wait_applied(min(version, channel.wanted_version)) for channel in self._channels.values()]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.gather(*waiting)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close every channel."""
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), *self._closing, return_exceptions=True)
        await self._connections.close()
