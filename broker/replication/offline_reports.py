"""Reports replicas lost with a log directory to the controller, so that other brokers lead them.

A report names all lost replicas, so a repetition does no harm. The broker reports when the set
changes, again until the controller accepts, and again after each full image, whose sender may be a
new controller without this knowledge. Kafka's brokers leave a notice in ZooKeeper instead and are
then asked; a request states at once what is lost, and under which registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.replicas import Replicas
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import Supervisor
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.protocol.ids import PartitionKey

log = get_logger(__name__)
state_change = state_change_logger()

RETRY_MS: Final = 200


class OfflineReplicaReports:
    """Keeps the controller informed of this broker's offline replicas."""

    def __init__(
        self,
        replicas: Replicas,
        controller: ControllerClient,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        # Without lost replicas there is nothing to report, so a start needs no request.
        self._reported: frozenset[PartitionKey] | None = frozenset()
        """The last report to the controller, None when it is not known whether it arrived."""
        self._has_news = asyncio.Event()
        self._loops = Supervisor()

    def start(self) -> None:
        """Begin to report."""
        self._loops.start("offline replicas", self._report_again_and_again)

    async def stop(self) -> None:
        """Report nothing more."""
        await self._loops.stop()

    def report(self) -> None:
        """The lost replicas have changed: report them again."""
        self._has_news.set()

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Forget all reports after a full image (an `ImageListener`)."""
        # A full image may come from a new controller, which lacks the reports to the previous one.
        if after.full_version != before.full_version:
            self._reported = frozenset()
            self._has_news.set()

    async def _report_again_and_again(self) -> None:
        self._has_news.set()
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                is_known = await self._report()
            except ControllerUnavailable as error:
                log.warning("offline replicas could not be reported to the controller", reason=str(error))
                is_known = False
            if not is_known:
                self._has_news.set()
                await asyncio.sleep(RETRY_MS / 1000)

    async def _report(self) -> bool:
        """True if the controller has the report; False if it does not know the registration."""
        lost = frozenset(self._replicas.offline)
        if lost == self._reported:
            return True
        self._reported = lost  # a full image that comes meanwhile empties it again
        try:
            reply = await self._controller.report_offline_replicas(
                pb.ReportOfflineReplicasRequest(
                    node_id=self._node_id,
                    broker_epoch=self._broker_epoch(),
                    partitions=[pb.PartitionName(topic=topic, partition=index) for topic, index in sorted(lost)],
                )
            )
        except BaseException:
            # Also after a cancellation, because the request may have arrived.
            self._reported = None
            raise
        if reply.error_code:
            self._reported = None
            log.info("controller refused the report of offline replicas", code=ErrorCode(reply.error_code).name)
            return False
        state_change.info("offline replicas reported to the controller", partitions=len(lost))
        return True
