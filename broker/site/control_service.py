"""The gRPC service that the site's controller and site agent call: images in, partition
descriptions out.

Batches are applied one at a time in the order of arrival, on the event loop (`image_changes.py`). A
batch of an older controller epoch, or one for an older registration of this broker, is refused with
FAILED_PRECONDITION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

import grpc

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import (
    OtherCluster,
    StaleControllerEpoch,
    apply_batch,
    check_fence,
    lacks_topics,
    with_peer_reports,
    with_peer_view,
    without_departed,
    without_old_reports,
)
from broker.metadata.core.link_enforcement import has_leaders_above_floor, is_in_force
from broker.metadata.core.topic_images import TopicImage
from broker.replication.replica_figures import (
    describe,
    describe_in_columns,
    is_of_link,
    logs_version,
    quarantine_use,
    truncations,
)
from broker.replication.replicas import Replicas
from broker.site.control_doors import DescribeGroups, Handover
from broker.site.image_changes import ImageChanges, ImageListener
from broker.site.link_confirmations import LinkConfirmations
from runtime.clock import Clock, SystemClock
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.control import broker_pb2 as pb
from wire.control import broker_pb2_grpc, cluster_pb2
from wire.control.cluster_pb2 import LinkPhase

log = get_logger(__name__)

DEPARTED_LISTED_S = 3.0
"""Time (s) for which Metadata lists a broker that is gone: clients still ask about it."""

WRITABLE_NAMED = 5
"""Partitions that a brief description names."""
REPORTS_KEPT_MS = 10_000
"""The age (ms) from which a view that differs from a peer's report counts: longer than a site agent
takes to see a change and to ask for a view.
"""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class BrokerControlService(broker_pb2_grpc.BrokerControlServicer):
    """BrokerControl (see the proto) over a broker's image and replicas."""

    def __init__(
        self,
        node_id: int,
        cluster: Cluster,
        replicas: Replicas,
        *,
        broker_epoch: Callable[[], int],
        describe_groups: DescribeGroups,
        handover: Handover,
        clock: Clock | None = None,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._describe_groups = describe_groups
        self._handover = handover
        self._clock = clock or SystemClock()
        self._changes = ImageChanges(cluster, replicas)
        self.confirmations = LinkConfirmations(cluster, self._changes, replicas.standbys, self._clock)
        self._forgetting: asyncio.Task[None] | None = None

    def on_image(self, listener: ImageListener) -> None:
        """Call `listener(before, after)` once replicas have the roles of a new image."""
        self._changes.on_image(listener)

    async def Apply(  # noqa: N802  named by the proto
        self, request: pb.ControlBatch, context: Context
    ) -> pb.ControlReply:
        """Apply a full image or a change."""
        async with self._changes.exclusive() as image:
            try:
                check_fence(image, request, broker_epoch=self._broker_epoch())
            except (StaleControllerEpoch, OtherCluster) as error:
                log.warning("control batch refused", reason=str(error))
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            try:
                failures = await self._changes.apply(image, apply_batch(image, request))
            finally:
                self._remember_departed(image)
        return pb.ControlReply(node_id=self._node_id, failures=failures)

    def _remember_departed(self, before: ClusterImage) -> None:
        """Brokers that have just gone are listed for a while longer."""
        # each departure restarts the time for all of them, which at worst lists a broker for longer
        if self._cluster.image.departed.keys() - before.departed.keys():
            if self._forgetting is not None:
                self._forgetting.cancel()
            self._forgetting = in_background("brokers that went", self._forget_departed())

    async def _forget_departed(self) -> None:
        await asyncio.sleep(DEPARTED_LISTED_S)
        async with self._changes.exclusive() as before:
            await self._changes.apply(before, without_departed(before))

    async def stop(self) -> None:
        """Stop changing roles by itself."""
        await self.confirmations.stop()
        if self._forgetting is not None:
            self._forgetting.cancel()
            await asyncio.gather(self._forgetting, return_exceptions=True)

    async def ConfirmLink(  # noqa: N802
        self,
        request: pb.ConfirmLinkRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ConfirmLinkReply:
        """The peer confirmed the link's epoch; of a link with a lease, a permit or its end."""
        reply = await self.confirmations.confirm(request)
        if request.asks_writable and reply.is_confirmed:
            reply.are_writable = self._are_writable(self._cluster.image, request.link)
        return reply

    def _are_writable(self, image: ClusterImage, link: str) -> bool:
        """True if each partition of the link has a leader above the floor, and those led here take
        writes.
        """
        record = image.links.get(link)
        takes_writes = self._replicas.takes_writes
        return (
            record is not None
            and has_leaders_above_floor(image, record)
            and all(
                takes_writes(topic.name, index)
                for topic in image.topics.values()
                if is_of_link(image, topic.name, link)
                for index, partition in topic.partitions.items()
                if partition.leader == self._node_id
            )
        )

    async def UpdatePeerView(  # noqa: N802
        self,
        request: cluster_pb2.SiteView,
        context: Context,  # noqa: ARG002
    ) -> pb.UpdatePeerViewReply:
        """Take the other site's current view."""
        async with self._changes.exclusive() as before:
            if lacks_topics(before, request):
                return pb.UpdatePeerViewReply(lacks_topics=True)
            image = self._without_old_reports(before, request.site)
            await self._changes.apply(before, with_peer_view(image, request))
        return pb.UpdatePeerViewReply()

    async def PeerViewConfirmed(  # noqa: N802
        self,
        request: pb.PeerViewConfirmedRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.PeerViewConfirmedReply:
        """The view of the other site that this broker has is as new as can be."""
        async with self._changes.exclusive() as before:
            await self._changes.apply(before, self._without_old_reports(before, request.site))
        return pb.PeerViewConfirmedReply()

    async def apply_peer_reports(self, site: str, reports: Sequence[tuple[TopicImage, bool]]) -> None:
        """Topics that a broker of the other site reports, each with whether it was deleted, which
        its next view will show as well.
        """
        async with self._changes.exclusive() as before:
            await self._changes.apply(
                before, with_peer_reports(before, site, reports, at_ms=self._clock.monotonic_ms())
            )

    def _without_old_reports(self, image: ClusterImage, site: str) -> ClusterImage:
        return without_old_reports(image, site, before_ms=self._clock.monotonic_ms() - REPORTS_KEPT_MS)

    async def Identify(  # noqa: N802
        self,
        request: pb.IdentifyRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.IdentifyReply:
        """The registration of this process."""
        return pb.IdentifyReply(node_id=self._node_id, broker_epoch=self._broker_epoch())

    async def DescribePartitions(  # noqa: N802
        self,
        request: pb.DescribePartitionsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DescribePartitionsReply:
        """Offsets, epochs and roles of the partitions led here."""
        if request.is_brief:
            if request.wait_ms:
                await self._cluster.wait_for(
                    lambda image: is_in_force(image, request.awaited), timeout_ms=request.wait_ms
                )
            return self._enforced(self._cluster.image, request)
        image, version, is_unchanged = self._cluster.image, 0, False
        if request.with_version:
            version = logs_version(self._replicas, image, broker_epoch=self._broker_epoch(), link=request.link)
            # Messages also name the link's epoch, which each image may change.
            version = version if request.accepts_columns else abs(hash((version, image.version))) or 1
            is_unchanged = request.known_versions.get(self._node_id) == version
        topics, has_columns = set(request.topics), request.accepts_columns and not is_unchanged
        return pb.DescribePartitionsReply(
            node_id=self._node_id,
            version=version,
            is_unchanged=is_unchanged,
            partitions=()
            if is_unchanged or has_columns
            else describe(self._replicas, image, topics=topics, link=request.link),
            columns=describe_in_columns(self._replicas, image, topics=topics, link=request.link)
            if has_columns
            else None,
            cuts=self._cuts(image, request.link),
            quarantine=quarantine_use(self._replicas.cuts, node_id=self._node_id, now_ms=self._clock.now_ms()),
            link_epochs={name: link.epoch for name, link in image.links.items()},
            link_revisions={name: link.revision for name, link in image.links.items()},
            link_phases={name: link.phase for name, link in image.links.items()},
        )

    def _cuts(self, image: ClusterImage, link: str) -> Iterable[pb.TruncatedLog]:
        """The records that logs here have lost; for topics of this link, or for all."""
        cuts = truncations(self._replicas, self._replicas.cuts, node_id=image.node_id)
        return (cut for cut in cuts if is_of_link(image, cut.topic, link))

    def _enforced(self, image: ClusterImage, request: pb.DescribePartitionsRequest) -> pb.DescribePartitionsReply:
        """The links in force at this site, and a few of the partitions that take writes."""
        writable = (key for key in self._replicas.writable() if is_of_link(image, key[0], request.link))
        return pb.DescribePartitionsReply(
            node_id=self._node_id,
            partitions=[
                pb.PartitionDescription(topic=topic, partition=index, is_writable=True)
                for topic, index in islice(writable, WRITABLE_NAMED)
            ],
            link_epochs={name: link.epoch for name, link in image.links.items()},
            link_revisions={name: link.revision for name, link in image.links.items()},
            link_phases={name: link.phase for name, link in image.links.items()},
            # Only a promotion asks for leaders: a look at thousands would delay a fence.
            has_leaders=request.awaited.active_site == image.site
            and request.awaited.phase != LinkPhase.FENCED
            and has_leaders_above_floor(image, request.awaited),
        )

    async def DescribeQuarantine(  # noqa: N802
        self,
        request: pb.DescribeQuarantineRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DescribeQuarantineReply:
        """This broker's quarantine entries for copies of a link."""
        # it reads every log directory
        kept = await asyncio.to_thread(self._replicas.quarantined, request.link)
        return pb.DescribeQuarantineReply(
            ends=[
                pb.QuarantinedEnd(
                    topic=entry.topic,
                    partition=entry.partition,
                    first_offset=entry.first_offset,
                    end_offset=entry.end_offset,
                    size_bytes=entry.size_bytes,
                    link_epoch=entry.link_epoch,
                    name=entry.name,
                )
                for entry in kept
            ]
        )

    async def DescribeGroupOffsets(  # noqa: N802
        self,
        request: pb.DescribeGroupOffsetsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DescribeGroupOffsetsReply:
        """Committed offsets of the groups that a link carries and that are coordinated here."""
        reply = await self._describe_groups(request.link, is_brief=request.is_brief)
        reply.node_id = self._node_id
        return reply

    async def DescribeGroupMembers(  # noqa: N802
        self,
        request: pb.DescribeGroupMembersRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.DescribeGroupMembersReply:
        """Members of the groups that a link carries and that are coordinated here."""
        return self._handover.describe(request.link)

    async def TakeGroupMembers(  # noqa: N802
        self,
        request: pb.TakeGroupMembersRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.TakeGroupMembersReply:
        """Members of the other site's groups, which this site coordinates from now on."""
        return await self._handover.take(request)
