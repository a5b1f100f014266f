"""MirrorOffsetCommit (private): a mirror writes a group's offsets at the passive site.

Behaviour: accepted only while a link makes this site passive for the group, and at the link's
epoch, which the group instance id carries (`wire/protocol/messages/private.py`); a group with
members keeps its offsets (NON_EMPTY_GROUP). Topics need not be here yet. Offset -1 means that the
active site has removed the offset: it is removed here too, unless the group has another one than
the metadata names. A request without a group is a daemon's
report on its part of the link: the time as of which every offset is mirrored, for the account of a
failover, and its problems. Versions: 8 and 9. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import MirrorOffsets
from broker.handlers.groups.named_offsets import named_offsets, response
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.site.group_reports import GroupReports
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, PRIVATE_VERSIONS, parse_link_claim
from wire.rules.sync_reports import decode_report

API_KEY = MIRROR_OFFSET_COMMIT
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_OFFSET_COMMIT]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    group_reports: GroupReports
    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a MirrorOffsetCommit request."""
    try:
        link, link_epoch = parse_link_claim(request.group_instance_id)
    except ValueError:
        return response(API_KEY, context, request, ErrorCode.invalid_request, {})
    if not request.group_id:
        _note_report(doors, request, link, link_epoch)
        taken = dict.fromkeys(named_offsets(request, lambda _: True), ErrorCode.none)
        return response(API_KEY, context, request, ErrorCode.none, taken)
    offsets = named_offsets(request, lambda _: True)
    command = MirrorOffsets(group_id=request.group_id, offsets=offsets)
    try:
        reply = await doors.groups.commit_mirrored(command, link=link, link_epoch=link_epoch)
    except CoordinatorRefusal as refusal:
        return response(API_KEY, context, request, refusal.code, {})
    return response(API_KEY, context, request, reply.error, reply.errors)


def _note_report(doors: Doors, request: Any, link: str, link_epoch: int) -> None:
    record, claim = doors.cluster.image.links.get(link), request.member_id
    if record is None or record.epoch != link_epoch or not (claim.isascii() and claim.isdecimal()):
        return
    report = next((partition.committed_metadata for topic in request.topics for partition in topic.partitions), None)
    try:
        decoded = decode_report(report, synced_at_ms=int(claim))
    except ValueError:
        return
    doors.group_reports.note_report(link, decoded, link_epoch=link_epoch)
