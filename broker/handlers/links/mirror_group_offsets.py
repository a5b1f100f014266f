"""MirrorGroupOffsets (private): a mirror writes the offsets of several groups at the passive site.

Behaviour: that of a MirrorOffsetCommit for each group (`mirror_offset_commit.py`). The groups are
decided at once and wait for the log together; one that is refused does not affect the others.
Versions: 0. Not done: nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import CommittedOffset, MirrorOffsets
from broker.metadata.request_context import RequestContext
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.group_offset_messages import (
    MIRROR_GROUP_OFFSETS,
    MirroredGroup,
    MirroredGroupOutcome,
    MirrorGroupOffsetsResponse,
    RefusedOffset,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = MIRROR_GROUP_OFFSETS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_GROUP_OFFSETS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a MirrorGroupOffsets request."""
    outcomes = await asyncio.gather(
        *(_commit(doors, group, link=request.link, link_epoch=request.link_epoch) for group in request.groups)
    )
    return MirrorGroupOffsetsResponse(outcomes=tuple(outcomes))


async def _commit(doors: Doors, group: MirroredGroup, *, link: str, link_epoch: int) -> MirroredGroupOutcome:
    offsets = {
        TopicPartition(one.topic, one.partition_index): CommittedOffset(
            one.committed_offset, one.committed_leader_epoch, one.committed_metadata
        )
        for one in group.offsets
    }
    command = MirrorOffsets(group_id=group.group_id, offsets=offsets)
    try:
        reply = await doors.groups.commit_mirrored(command, link=link, link_epoch=link_epoch)
    except CoordinatorRefusal as refusal:
        return MirroredGroupOutcome(error_code=refusal.code, refused=())
    refused = tuple(
        RefusedOffset(topic=TopicName(key.topic), partition_index=i32(key.partition), error_code=code)
        for key in offsets
        if (code := reply.errors.get(key, ErrorCode.unknown_topic_or_partition)) is not ErrorCode.none
    )
    return MirroredGroupOutcome(error_code=reply.error, refused=refused)
