"""Changes of in-sync replicas that leaders here propose to the controller: one request at a time
with all that has gathered (KIP-497).

`consider` is called after each follower's fetch, the shrinking pass by time. `core/partition.py`
decides about proposals; the controller's response decides about the ISR, or the image if it arrives
first. A request whose outcome is unknown is sent again as it was: by the partition epoch in it the
controller knows whether it has been applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import partition_image
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from runtime.clock import Clock
from runtime.logs import STATE_CHANGE, LogLines, get_logger
from runtime.supervision import Supervisor
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.ids import PartitionKey

log = get_logger(__name__)

RETRY_MS: Final = 100  # a controller that is elected meanwhile needs about that long
SHRINK_PASSES_PER_LAG: Final = 2  # as in Kafka: a laggard stays for one and a half lags at most
PARTITIONS_PER_TURN: Final = 500
"""Number of partitions that are examined before the event loop turns to other tasks."""


class IsrProposals:
    """All open proposals of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        cluster: Cluster,
        controller: ControllerClient,
        settings: BrokerSettings,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._controller = controller
        self._settings = settings
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._open: dict[PartitionKey, HostedPartition] = {}
        self._has_news = asyncio.Event()
        self._loops = Supervisor()
        self._epochs_of: ClusterImage | None = None
        self._broker_epochs: dict[int, int] = {}
        self.expansions = 0
        self.shrinks = 0
        self.failures = 0

    def start(self) -> None:
        """Begin to send, and to look for replicas that lag."""
        self._loops.start("isr proposals", self._send_again_and_again)
        self._loops.start("isr shrinking", self._shrink_again_and_again)

    async def stop(self) -> None:
        """Propose nothing more."""
        await self._loops.stop()

    def consider(self, hosted: HostedPartition, replica: int) -> None:
        """A follower has fetched: propose it when it has caught up; nothing waits for one that has
        fallen behind again.
        """
        lag_ms_max = self._settings.replica_lag_ms_max
        self._replicas.act(hosted, hosted.state.consider(replica, self._registered(), lag_ms_max=lag_ms_max))

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """A removed broker will not join the in-sync replicas: stop waiting for it."""
        if before.brokers is not after.brokers:
            self._drop_joining()

    def _drop_joining(self) -> None:
        now_ms, lag_ms_max = self._clock.monotonic_ms(), self._settings.replica_lag_ms_max
        for hosted in self._replicas:
            if hosted.state.joining:
                effects = hosted.state.drop_joining(self._registered(), now_ms=now_ms, lag_ms_max=lag_ms_max)
                self._replicas.act(hosted, effects)

    def _registered(self) -> dict[int, int]:
        image = self._cluster.image
        # one mapping for each image: `consider` runs at each fetch of a follower out of sync
        if self._epochs_of is not image:
            self._broker_epochs = {node: broker.broker_epoch for node, broker in image.brokers.items()}
            self._epochs_of = image
        return self._broker_epochs

    def gather(self, hosted: HostedPartition) -> None:
        """The partition's leader wants other in-sync replicas: ask the controller."""
        self._open[hosted.key] = hosted
        self._has_news.set()

    async def _shrink_again_and_again(self) -> None:
        lag_ms_max = self._settings.replica_lag_ms_max
        while True:
            await asyncio.sleep(lag_ms_max / SHRINK_PASSES_PER_LAG / 1000)
            self._drop_joining()
            now_ms = self._clock.monotonic_ms()
            for number, hosted in enumerate(self._replicas, 1):
                if number % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                    now_ms = self._clock.monotonic_ms()
                if effects := hosted.state.shrink_isr(now_ms=now_ms, lag_ms_max=lag_ms_max):
                    self._replicas.act(hosted, effects)

    # --- sending

    async def _send_again_and_again(self) -> None:
        self._has_news.set()  # proposals may have been open when the loop died
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await self._send()
            except ControllerUnavailable as error:
                log.warning(
                    "in-sync replicas could not be proposed to the controller",
                    partitions=len(self._open),
                    reason=str(error),
                )
                self._has_news.set()
                await asyncio.sleep(RETRY_MS / 1000)

    def _request(self) -> pb.AlterPartitionsRequest:
        epochs = self._registered()
        request = pb.AlterPartitionsRequest(node_id=self._settings.node_id, broker_epoch=self._broker_epoch())
        for key, hosted in tuple(self._open.items()):
            state = hosted.state
            if state.proposed_isr is None or not state.is_leader:
                # Nothing is left to request: an image has settled it, or this broker is not the
                # leader.
                del self._open[key]
                continue
            request.partitions.add(
                topic=hosted.topic,
                topic_id=hosted.topic_id,
                partition=hosted.index,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                # -1: a member that is not registered; the controller refuses it by that
                isr=[pb.InSyncReplica(node_id=node, broker_epoch=epochs.get(node, -1)) for node in state.proposed_isr],
            )
        return request

    async def _send(self) -> None:
        request = self._request()
        if not request.partitions:
            return
        reply = await self._controller.alter_partitions(request)
        refused = LogLines(__name__, "controller refused proposed in-sync replicas")
        changed = LogLines(STATE_CHANGE, "in-sync replicas changed")
        asked = {(sent.topic, sent.partition): sent for sent in request.partitions}
        # Only open proposals: the answer may belong to a request before a change of leadership.
        for answer in reply.partitions:
            key = answer.topic, answer.partition
            hosted, sent = self._open.get(key), asked.get(key)
            if hosted is None:
                continue
            is_here = self._replicas.find(*key) is hosted
            if is_here and sent is not None:
                try:
                    self._take(hosted, sent, answer, refused=refused, changed=changed)
                except StorageError as error:  # of one log: the other partitions have their answers too
                    self._replicas.storage_failed(error)
            if not is_here or hosted.state.proposed_isr is None:
                del self._open[key]  # else another proposal was made while this answer was on its way
        refused.write()
        changed.write()

    def _take(
        self,
        hosted: HostedPartition,
        sent: pb.ProposedPartition,
        answer: pb.AlteredPartition,
        *,
        refused: LogLines,
        changed: LogLines,
    ) -> None:
        state, replicas = hosted.state, self._replicas
        before = state.isr
        if answer.HasField("state"):
            # Set first: until it is known which set is in force, the high watermark waits for both.
            replicas.assigned.apply_state(self._cluster.image, hosted, partition_image(answer.state))
        # Neither an answer nor an image has moved the epochs, so the controller has kept the old
        # set.
        if (state.leader_epoch, state.partition_epoch) == (sent.leader_epoch, sent.partition_epoch):
            replicas.act(hosted, state.withdraw_proposal())
        if answer.error_code == ErrorCode.ineligible_replica:
            for member in sent.isr:
                if member.node_id not in state.isr:
                    now_ms = self._clock.monotonic_ms()
                    replicas.act(hosted, state.refuse(member.node_id, member.broker_epoch, now_ms=now_ms))
        if answer.error_code:
            self.failures += 1
            refused.add(
                topic=hosted.topic,
                partition=hosted.index,
                isr=[member.node_id for member in sent.isr],
                code=ErrorCode(answer.error_code).name,
            )
        if not answer.error_code and state.isr != before:
            self.expansions += len(state.isr) > len(before)
            self.shrinks += len(state.isr) < len(before)
            changed.add(
                topic=hosted.topic,
                partition=hosted.index,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                high_watermark=state.high_watermark,
            )
