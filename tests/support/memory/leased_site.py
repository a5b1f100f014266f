"""A broker of a site whose link has a lease: its image, and the service by which agents confirm the
link's role.
"""

from __future__ import annotations

from typing import Any

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.image_updates import apply_batch
from broker.site.control_service import BrokerControlService
from wire.control.broker_pb2 import ConfirmLinkRequest, ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, PartitionState, TopicInfo

CONTEXT: Any = None
OWN = 1


class NoReplicas:
    """The replicas of a broker without partitions; they take every image."""

    def __init__(self) -> None:
        self.assigned = self.standbys = self

    async def apply(self, *_: object) -> list[object]:
        """Finds no hosted partition."""
        return []

    def is_behind(self, *_: object) -> bool:
        """No request waits."""
        return False

    def wants_mark(self, *_: object) -> bool:
        """No request waits."""
        return False

    def mark_out_of_sync(self, *_: object, is_marked: bool) -> None:
        """Nothing to mark."""


def leased(
    *,
    name: str = "a-b",
    epoch: int = 1,
    active: str = "a",
    phase: LinkPhase = LinkPhase.MIRRORING,
    topics: tuple[str, ...] = ("orders",),
    lease_ms: int = 1_000,
) -> Any:
    """The record of a link with a lease."""
    return LinkRecord(
        name=name,
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=epoch,
        active_site=active,
        phase=phase,
        is_routed=True,
        topic_whitelist=topics,
        group_whitelist=["billing"],
        lease_ms=lease_ms,
    )


def topic(name: str, letter: bytes) -> TopicInfo:
    """A topic of one partition that the broker leads."""
    states = [PartitionState(partition=0, leader=OWN, replicas=[OWN], isr=[OWN])]
    return TopicInfo(name=name, topic_id=letter * 16, partitions=states)


def with_link(image: ClusterImage, record: LinkRecord) -> ClusterImage:
    """The image with this link and a topic in it, and another topic."""
    topics = [topic("orders", b"o"), topic("home", b"h")]
    return apply_batch(image, ControlBatch(is_full=True, controller_epoch=1, topics=topics, links=[record]))


class Home:
    """A broker's image and its control service."""

    def __init__(self, clock: Any, record: LinkRecord | None = None, *, replicas: NoReplicas | None = None) -> None:
        self.clock = clock
        self.cluster = Cluster(with_link(ClusterImage(site="a", node_id=OWN), record or leased()))
        parts: Any = (OWN, self.cluster, replicas or NoReplicas())
        self.service = BrokerControlService(
            *parts, broker_epoch=lambda: 1, describe_groups=NotImplemented, handover=NotImplemented, clock=clock
        )

    async def confirm(self, *, epoch: int = 1, permit_until_ms: float = 0) -> bool:
        """Confirms the link, as the site agent asks for it."""
        request = ConfirmLinkRequest(link="a-b", epoch=epoch, permit_until_ms=int(permit_until_ms))
        return bool((await self.service.ConfirmLink(request, CONTEXT)).is_confirmed)

    @property
    def role(self) -> LinkRole:
        """The role of this site for the link's topics."""
        return self.cluster.image.role_of_topic("orders")

    def replace_link(self, record: LinkRecord) -> None:
        """The controller sends another record."""
        self.cluster.replace(with_link(self.cluster.image, record))
