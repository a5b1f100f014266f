"""MirrorReports (private): the source has no new records of the partitions of a mirror's session.

Behaviour: refused for another link epoch and for an unknown session. The report counts for each
partition that is as it was when it entered the session, as an empty MirrorAppend would; the others
leave the session (`broker/replication/report_sessions.py`). Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import topic_id_bytes
from broker.replication.replicas import Replicas
from broker.replication.report_sessions import NewMember, ReportSession, ReportSessions
from wire.protocol.messages.mirror_report_messages import MIRROR_REPORTS, NEW_SESSION, MirrorReportsResponse
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = MIRROR_REPORTS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_REPORTS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    replicas: Replicas
    report_sessions: ReportSessions


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a MirrorReports request."""
    link = doors.cluster.image.links.get(request.link)
    if link is None or request.link_epoch > link.epoch:
        return _refused(ErrorCode.unknown_leader_epoch)
    if request.link_epoch < link.epoch:
        return _refused(ErrorCode.fenced_leader_epoch)
    session = _session(doors, request)
    if session is None:
        return _refused(ErrorCode.fetch_session_id_not_found)
    ended = doors.report_sessions.report(
        session,
        doors.cluster.image,
        seen_at_ms=request.source_seen_at_ms,
        removed=request.removed,
        added=[_member(doors, topic, partition) for topic in request.added for partition in topic.partitions],
    )
    return MirrorReportsResponse(
        error_code=ErrorCode.none, session_id=i64(session.session_id), ended=tuple(map(i32, ended))
    )


def _session(doors: Doors, request: Any) -> ReportSession | None:
    if request.session_id == NEW_SESSION:
        return doors.report_sessions.begin(doors.cluster.image, link=request.link, link_epoch=request.link_epoch)
    return doors.report_sessions.find(request.session_id, link=request.link, link_epoch=request.link_epoch)


def _member(doors: Doors, topic: Any, partition: Any) -> NewMember:
    hosted = doors.replicas.find(topic.name, partition.index)
    if hosted is not None and topic_id_bytes(topic.topic_id) != hosted.topic_id:
        hosted = None
    return NewMember(hosted, partition.log_end_offset, partition.source_high_watermark)


def _refused(error: ErrorCode) -> MirrorReportsResponse:
    return MirrorReportsResponse(error_code=error, session_id=i64(NEW_SESSION), ended=())
