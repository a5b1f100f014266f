"""MirrorAdmin over gRPC: the mirror's status, pauses, and comparisons, for the command line and
drills.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Protocol

import grpc

from mirror.admin.reinstatements import Reinstatement, Reinstatements
from mirror.admin.resets import Resets, TopicReset
from mirror.admin.status import MirrorStatus
from mirror.admin.verifier import Comparison, Verifier
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.health import Health, assess, not_opened
from mirror.flow.pauses import ALL_TOPICS, NotKept, Pauses
from mirror.flow.queue import ByteQueue
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.refusals import Refusal
from mirror.link.ports import Unreachable
from mirror.sharing.peer_watch import PeersStatus
from wire.control import mirror_pb2 as pb
from wire.control import mirror_pb2_grpc
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import InvalidPattern, matches

SERVICE_NAME = "antipode.control.MirrorAdmin"
GROUP_PROBLEMS_SHOWN = 100
REFUSALS_SHOWN = 100


class RunningMirror(Protocol):
    """A started mirror, as MirrorAdmin uses it."""

    @property
    def board(self) -> FlowBoard:
        """The partitions."""
        ...

    @property
    def queue(self) -> ByteQueue:
        """The batches between fetch and acknowledgement."""
        ...

    @property
    def pauses(self) -> Pauses:
        """The topics that are paused."""
        ...

    @property
    def verifier(self) -> Verifier | None:
        """The comparison of both logs; None if this link has none."""
        ...

    @property
    def resets(self) -> Resets:
        """The resets of topics."""
        ...

    @property
    def reinstatements(self) -> Reinstatements:
        """The reinstatements of copies."""
        ...

    @property
    def status(self) -> MirrorStatus:
        """The status of the last round; any thread may read it."""
        ...

    def look(self) -> MirrorStatus:
        """Build the current status; only the event loop may call this."""
        ...


class MirrorAdminService(mirror_pb2_grpc.MirrorAdminServicer):
    """Serves from the daemon's start on; before the daemon has found its link, the state is
    PREPARING.
    """

    def __init__(self, link_name: str) -> None:
        self._link_name = link_name
        self._mirror: RunningMirror | None = None
        self._reason = "the link has not been read yet"

    def show(self, mirror: RunningMirror) -> None:
        """Serve this mirror's status from now on."""
        self._mirror = mirror

    def explain(self, reason: str) -> None:
        """Set the reason why there is no status to serve yet."""
        self._reason = reason

    def health(self) -> Health:
        """The health of the mirror; any thread may call this."""
        return not_opened(self._reason) if self._mirror is None else health_of(self._mirror.board, self._mirror.status)

    async def DescribeMirror(  # noqa: N802 (gRPC's name)
        self,
        request: pb.DescribeMirrorRequest,
        context: grpc.aio.ServicerContext[pb.DescribeMirrorRequest, pb.DescribeMirrorReply],
    ) -> pb.DescribeMirrorReply:
        """The whole status, by partition."""
        await self._is_meant(request.link, context)
        if self._mirror is None:
            return pb.DescribeMirrorReply(
                link=self._link_name, state=FlowState.PREPARING.value, reason=self._reason, groups_synced_at_ms=-1
            )
        return describe(self._mirror)

    async def PauseMirror(  # noqa: N802 (gRPC's name)
        self, request: pb.PauseMirrorRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.PauseMirrorReply:
        """Pause topics until they are resumed."""
        mirror = await self._ready(request.link, context)
        async with _refusals(context):
            paused = mirror.pauses.pause(request.topics)
        return _paused(mirror.pauses, paused)

    async def ResumeMirror(  # noqa: N802 (gRPC's name)
        self, request: pb.PauseMirrorRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.PauseMirrorReply:
        """Remove pauses with these patterns."""
        mirror = await self._ready(request.link, context)
        unknown = [pattern for pattern in request.topics if pattern not in mirror.pauses.patterns]
        if unknown:
            known = ", ".join(mirror.pauses.patterns) or "nothing"
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"not paused: {', '.join(unknown)}; paused is {known}"
            )
        async with _refusals(context):
            resumed = mirror.pauses.resume(request.topics)
        return _paused(mirror.pauses, resumed)

    async def ResetTopics(  # noqa: N802 (gRPC's name)
        self, request: pb.ResetTopicsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ResetTopicsReply:
        """Delete copies that cannot be mirrored any further."""
        mirror = await self._ready(request.link, context)
        async with _refusals(context):
            outcomes = await mirror.resets.reset(request.topics, is_dry_run=request.is_dry_run)
        return pb.ResetTopicsReply(topics=[_reset(outcome) for outcome in outcomes])

    async def ReinstateCopies(  # noqa: N802 (gRPC's name)
        self, request: pb.ReinstateCopiesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ReinstateCopiesReply:
        """Quarantine the own records of diverged copies, and continue mirroring from the common
        history.
        """
        mirror = await self._ready(request.link, context)
        async with _refusals(context):
            outcomes = await mirror.reinstatements.reinstate(request.topics, is_dry_run=request.is_dry_run)
        return pb.ReinstateCopiesReply(partitions=[_reinstated(outcome) for outcome in outcomes])

    async def VerifyMirror(  # noqa: N802 (gRPC's name)
        self, request: pb.VerifyMirrorRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.VerifiedPartition]:
        """Compare partition by partition; yields each result when it is ready."""
        mirror = await self._ready(request.link, context)
        if mirror.verifier is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this mirror cannot compare")
            return
        patterns = list(request.topics) or [ALL_TOPICS]
        async with _refusals(context):
            matches("", whitelist=patterns, blacklist=())
        for key in sorted(key for key, _ in mirror.board.our_rows()):
            if not matches(key.topic, whitelist=patterns, blacklist=()):
                continue
            facts = mirror.board.row(key).facts
            end = facts.progress.target_log_end_offset
            if end == UNKNOWN:
                finding = f"this mirror does not know the target's log of it: {facts.state.value}, {facts.reason}"
                found = Comparison(is_known=False, finding=finding)
            else:
                found = await mirror.verifier.compare(key, mirrored_end=end, last_offsets=request.last_offsets)
            yield pb.VerifiedPartition(
                topic=key.topic,
                partition=key.partition,
                verdict=found.verdict,
                finding=found.finding,
                from_offset=found.from_offset,
                to_offset=found.to_offset,
                batches=found.batches,
                records=found.records,
            )

    async def _is_meant(self, link: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Refuse a caller that meant another link's mirror: it must not read, pause or reset this
        one by mistake.
        """
        if link not in ("", self._link_name):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"this is the mirror of link {self._link_name}, not of {link}"
            )

    async def _ready(self, link: str, context: grpc.aio.ServicerContext[Any, Any]) -> RunningMirror:
        await self._is_meant(link, context)
        if self._mirror is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"mirror of {self._link_name}: {self._reason}")
            raise AssertionError("abort returned")
        return self._mirror


@asynccontextmanager
async def _refusals(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Ends the call with the status of a failure of the body."""
    try:
        yield
    except InvalidPattern as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except NotKept as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except Unreachable as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def _paused(pauses: Pauses, partitions: int) -> pb.PauseMirrorReply:
    return pb.PauseMirrorReply(paused_topics=pauses.patterns, partitions=partitions)


def _reinstated(outcome: Reinstatement) -> pb.ReinstatedCopy:
    return pb.ReinstatedCopy(
        topic=outcome.key.topic,
        partition=outcome.key.partition,
        outcome=outcome.outcome.value,
        reason=outcome.reason,
        from_offset=outcome.from_offset,
        end_offset=outcome.end_offset,
        entry=outcome.entry,
    )


def _reset(outcome: TopicReset) -> pb.ResetTopic:
    return pb.ResetTopic(
        topic=outcome.topic,
        outcome=outcome.outcome.value,
        reason=outcome.reason,
        copy_id="" if outcome.copy_id is None else str(outcome.copy_id),
        partitions=[
            pb.ResetPartition(
                partition=log.partition,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                kept_from_offset=log.kept_from_offset,
            )
            for log in outcome.partitions
        ],
    )


def health_of(board: FlowBoard, status: MirrorStatus) -> Health:
    """The health of the whole mirror; any thread may call this."""
    # One partition of each state is enough: the first, so that the same one is named each time.
    first: dict[FlowState, tuple[TopicPartition, str]] = {}
    for key, row in board.restless_rows():
        facts = row.facts
        known = first.get(facts.state)
        if row.is_ours and (known is None or key < known[0]):
            first[facts.state] = key, facts.reason
    found = [(state, reason) for state, (_, reason) in first.items()]
    return assess(
        found + [(row.facts.state, row.facts.reason) for row in board.examples()],
        outage=status.outage,
        role=status.link.role,
        nothing_carried=status.nothing_carried,
        is_shared=status.peers is not None,
        waiting_for=status.waiting_for,
    )


def describe(mirror: RunningMirror) -> pb.DescribeMirrorReply:
    """The reply of DescribeMirror."""
    status, board = mirror.look(), mirror.board
    link = status.link
    partitions = [_partition(board, key, status) for key, _ in sorted(board.our_rows(), key=lambda row: row[0])]
    health = health_of(board, status)
    problems = dict(islice(sorted(status.group_problems.items()), GROUP_PROBLEMS_SHOWN))
    stale_since_ms = status.groups_stale_since_ms
    return pb.DescribeMirrorReply(
        link=link.name,
        link_epoch=link.epoch,
        state=health.state,
        reason=health.reason or link.reason,
        is_serving=health.is_serving,
        is_resting=link.role is LinkRole.TURNED,
        partitions=partitions,
        queued_bytes=mirror.queue.used_bytes,
        groups_synced_at_ms=status.groups_synced_at_ms,
        mode=link.record.mode,
        paused_topics=mirror.pauses.patterns,
        acls=status.acls,
        mirror_maker_problem=status.mirror_maker,
        transactions=status.transactions,
        group_problems=problems,
        refused_changes=[_refused(refusal) for refusal in islice(status.refusals, REFUSALS_SHOWN)],
        groups_ahead=dict(islice(sorted(status.groups_ahead.items()), GROUP_PROBLEMS_SHOWN)),
        groups_stale_since_ms={name: stale_since_ms[name] for name in problems if name in stale_since_ms},
        **_of_peers(status.peers),
    )


def _of_peers(peers: PeersStatus | None) -> dict[str, Any]:
    """The link's other daemons that disagree or fail."""
    if peers is None:
        return {}
    return {
        "failing_daemons": peers.failing,
        "disagreements": [
            pb.Disagreement(key=one.key, value=one.ours, daemon=one.daemon, value_there=one.theirs, reason=one.sentence)
            for one in islice(peers.disagreements, REFUSALS_SHOWN)
        ],
        "untaken_partitions": [
            pb.UntakenPartition(
                topic=one.key.topic, partition=one.key.partition, daemon=one.daemon, reason=one.sentence
            )
            for one in islice(peers.untaken, REFUSALS_SHOWN)
        ],
        "untaken_count": len(peers.untaken),
    }


def _refused(refusal: Refusal) -> pb.RefusedChange:
    return pb.RefusedChange(
        topic=refusal.topic, reason=refusal.reason, way_out=refusal.way_out, since_ms=refusal.since_ms
    )


def _partition(board: FlowBoard, key: TopicPartition, status: MirrorStatus) -> pb.MirrorPartition:
    facts, lag = board.row(key).facts, board.lag(key)
    stalled_ms, retention_part = status.stalled_for_ms.get(key, 0), status.retention_risks.get(key, 0.0)
    growth = status.falling_behind.get(key)
    slowness = (
        f"; it falls behind: its lag has grown from {growth.records_before:,} to {growth.records:,} records "
        f"in {growth.for_ms / 1000:.0f} s"
        if growth is not None
        else ""
    )
    stall = f"; it has not moved for {stalled_ms} ms" if stalled_ms else ""
    risk = (
        f"; it is behind by {retention_part:.0%} of the topic's retention.ms: records may expire before they are mirrored"
        if retention_part
        else ""
    )
    return pb.MirrorPartition(
        topic=key.topic,
        partition=key.partition,
        state=facts.state.value,
        reason=facts.reason + stall + slowness + risk,
        source_high_watermark=facts.progress.source_high_watermark,
        target_log_end_offset=facts.progress.target_log_end_offset,
        lag_records=lag.records,
        lag_bytes=lag.bytes,
        lag_ms=lag.ms,
        mirrored_bytes=facts.progress.mirrored_bytes,
        mirrored_records=facts.progress.mirrored_records,
        stalled_ms=stalled_ms,
        skipped_bytes=facts.progress.skipped_bytes,
        skipped_records=facts.progress.skipped_records,
        complete_ms_ago=board.complete_ms_ago(key),
    )
