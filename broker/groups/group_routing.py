"""Decides which site coordinates a group, and therefore what this broker may do with it, by the
link roles of ARCHITECTURE.md for groups.

| role | members, reading offsets | client commits | mirror commits |
| --- | --- | --- | --- |
| local, active | here | here | no |
| unconfirmed, fenced | here; under a fence no member joins | not now: COORDINATOR_LOAD_IN_PROGRESS, which clients retry here | no |
| passive, routed | NOT_COORDINATOR: clients find the active site's coordinator | NOT_COORDINATOR | at the link's epoch |
| passive, not routed | here: the site answers for itself | here | at the link's epoch, for groups without members |

A promoted site that is not confirmed yet takes the members of the fenced one (decision 131).
Offsets expire if the group is local or active here; otherwise the mirror removes those that the
active site has removed. Antipode's own programs (software name `antipode`) may read the passive
site's offsets. The image is read at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kio.schema.errors import ErrorCode

from broker.groups.core.consumer_protocol.consumer_group_states import TopicShapes
from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from broker.metadata.core.link_permits import LinkPermits
from runtime.clock import Clock, SystemClock
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import NO_TIMESTAMP
from wire.protocol.messages.private import link_claim
from wire.rules.links import truncates_logs
from wire.znodes.group_configs import GroupConfigs


class GroupRouting(Protocol):
    """The coordinator's queries about a group."""

    def partition_count(self) -> int:
        """Number of partitions of `__consumer_offsets`; 0 while it does not exist."""
        ...

    def topic_shapes(self) -> TopicShapes:
        """Id and partition count of every topic that clients see."""
        ...

    def group_configs(self, group_id: str) -> GroupConfigs:
        """The configs that are set for this group."""
        ...

    def is_elsewhere(self, group_id: str) -> bool:
        """True if clients must be sent to another site's coordinator."""
        ...

    def is_fenced(self, group_id: str) -> bool:
        """True while no site may write what the group's link carries: another site is about to
        coordinate it.
        """
        ...

    def commit_error(self, group_id: str) -> ErrorCode:
        """The error that refuses client commits here now; `none` if commits are allowed."""
        ...

    def may_acknowledge(self, group_id: str) -> bool:
        """False once the lease of the group's link has ended here: decisions must not be
        acknowledged.
        """
        ...

    def mirror_error(self, group_id: str, *, link: str, link_epoch: int) -> ErrorCode:
        """The error that refuses commits of a mirror of the link at that epoch; `none` if they are
        allowed.
        """
        ...

    def mirror_mark(self, link: str, link_epoch: int) -> str:
        """What offsets that a mirror of the link writes at that epoch are marked with."""
        ...

    def handover_error(self, group_id: str, *, link: str, link_epoch: int) -> ErrorCode:
        """The error that refuses members from the link's other site at that epoch; `none` if they
        are accepted.
        """
        ...

    def expiry_counted_from_ms(self, group_id: str) -> int | None:
        """The time since which offsets of the group may expire here; None while they live as long
        as at another site.
        """
        ...


class ImageRouting:
    """GroupRouting over the broker's newest image."""

    def __init__(
        self, image: Callable[[], ClusterImage], permits: LinkPermits | None = None, clock: Clock | None = None
    ) -> None:
        """`permits` are those of links with a lease, by the monotonic time of `clock`."""
        self._image = image
        self._permits = permits or LinkPermits()
        self._clock = clock or SystemClock()
        self._shapes: tuple[int, TopicShapes] = (-1, {})

    def topic_shapes(self) -> TopicShapes:
        """Id and partition count of every topic that clients can see; computed once for each
        image.
        """
        image = self._image()
        if self._shapes[0] != image.version:
            routed = {name: image.routed_topic(name) for name in image.routed_topic_names()}
            shapes = {
                name: (found.topic.topic_id, len(found.topic.partitions)) for name, found in routed.items() if found
            }
            self._shapes = image.version, shapes
        return self._shapes[1]

    def partition_count(self) -> int:
        """Number of partitions of `__consumer_offsets`; 0 while it does not exist."""
        topic = self._image().topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def group_configs(self, group_id: str) -> GroupConfigs:
        """The configs that are set for this group."""
        return self._image().group_configs.get(group_id, {})

    def is_elsewhere(self, group_id: str) -> bool:
        """True if a routed link makes this site passive for the group."""
        image = self._image()
        link = image.link_of_group(group_id)
        return link is not None and link.is_routed and image.role_in(link) is LinkRole.PASSIVE

    def is_fenced(self, group_id: str) -> bool:
        """True while no site may write what the group's link carries: another site is about to
        coordinate it.
        """
        image = self._image()
        return image.role_in(image.link_of_group(group_id)) is LinkRole.FENCED

    def commit_error(self, group_id: str) -> ErrorCode:
        """The error for a client that commits; `none` if this site accepts the commit."""
        if self.is_elsewhere(group_id):
            return ErrorCode.not_coordinator
        image = self._image()
        if image.role_in(image.link_of_group(group_id)) in (LinkRole.UNCONFIRMED, LinkRole.FENCED):
            return ErrorCode.coordinator_load_in_progress
        return ErrorCode.none

    def may_acknowledge(self, group_id: str) -> bool:
        """See the protocol."""
        if not self._permits.is_in_use:
            return True
        image = self._image()
        link = image.link_of_group(group_id)
        return self._permits.may_coordinate(image, link, now_ms=self._clock.monotonic_ms())

    def mirror_error(self, group_id: str, *, link: str, link_epoch: int) -> ErrorCode:
        """The same errors as for mirrored records: unknown link or later epoch, earlier epoch, site
        not passive for the group.
        """
        # A failover that truncates moves groups back before the promoted site takes writes.
        return self._role_error(
            group_id,
            link=link,
            link_epoch=link_epoch,
            is_allowed=lambda record, role: (
                role is LinkRole.PASSIVE or (role is LinkRole.UNCONFIRMED and truncates_logs(record))
            ),
        )

    def mirror_mark(self, link: str, link_epoch: int) -> str:
        """Link and epoch, and the time at which the link was made: a link that is deleted and made
        again under its name begins with the same epoch. Links of earlier releases have no time.
        """
        record, claim = self._image().links.get(link), link_claim(link, link_epoch)
        return f"{claim}+{record.made_at_ms}" if record is not None and record.made_at_ms else claim

    def handover_error(self, group_id: str, *, link: str, link_epoch: int) -> ErrorCode:
        """As `mirror_error`, for a promoted site that does not take writes yet."""
        return self._role_error(
            group_id,
            link=link,
            link_epoch=link_epoch,
            is_allowed=lambda record, role: record.is_routed and role is LinkRole.UNCONFIRMED,
        )

    def _role_error(
        self, group_id: str, *, link: str, link_epoch: int, is_allowed: Callable[[LinkRecord, LinkRole], bool]
    ) -> ErrorCode:
        image = self._image()
        record = image.links.get(link)
        if record is None or link_epoch > record.epoch:
            return ErrorCode.unknown_leader_epoch
        if link_epoch < record.epoch:
            return ErrorCode.fenced_leader_epoch
        if image.link_of_group(group_id) is not record or not is_allowed(record, image.role_in(record)):
            return ErrorCode.not_coordinator
        return ErrorCode.none

    def expiry_counted_from_ms(self, group_id: str) -> int | None:
        """The time of the link's record, which a promotion changes: old commits begin to age at
        that time.
        """
        image = self._image()
        link = image.link_of_group(group_id)
        if image.role_in(link) not in (LinkRole.LOCAL, LinkRole.ACTIVE):
            return None
        return NO_TIMESTAMP if link is None else link.updated_at_ms
