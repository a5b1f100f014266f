"""MirrorAdmin over gRPC: what the mirror knows of itself, asked by the command line and by drills. Read only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import grpc

from mirror.board import FlowBoard
from mirror.core.flow_state import FlowState
from mirror.core.partitions import PartitionKey
from mirror.link_watch import LinkStanding
from mirror.queue import ByteQueue
from wire.control import mirror_pb2 as pb
from wire.control import mirror_pb2_grpc

SERVICE_NAME = "antipode.control.MirrorAdmin"

_GRAVITY = (
    FlowState.FAULTED,
    FlowState.RESET,
    FlowState.GAP,
    FlowState.SOURCE_UNAVAILABLE,
    FlowState.REVERSING,
    FlowState.PREPARING,
    FlowState.PAUSED,
    FlowState.PROMOTING,
    FlowState.MIRRORING,
    FlowState.PROMOTED,
)
"""The mirror as a whole is in the gravest state of its partitions."""


@dataclass(frozen=True, slots=True)
class MirrorParts:
    """What the answers are read from."""

    board: FlowBoard
    queue: ByteQueue
    link: Callable[[], LinkStanding]
    groups_synced_at_ms: Callable[[], int]
    # A site that does not answer when its topics are looked at, and the state that this means; None while both answer.
    outage: Callable[[], tuple[FlowState, str] | None]


class MirrorAdminService(mirror_pb2_grpc.MirrorAdminServicer):
    """Serves from the moment that the daemon starts; before it has found its link, the state is PREPARING."""

    def __init__(self, link_name: str) -> None:
        self._link_name = link_name
        self._parts: MirrorParts | None = None
        self._reason = "the link has not been read yet"

    def show(self, parts: MirrorParts) -> None:
        """From now on there is something to tell."""
        self._parts = parts

    def explain(self, reason: str) -> None:
        """Why there is nothing to tell yet."""
        self._reason = reason

    async def DescribeMirror(  # noqa: N802 (gRPC's name)
        self,
        request: pb.DescribeMirrorRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[pb.DescribeMirrorRequest, pb.DescribeMirrorReply],  # noqa: ARG002
    ) -> pb.DescribeMirrorReply:
        """Everything, by partition."""
        if self._parts is None:
            return pb.DescribeMirrorReply(link=self._link_name, state=FlowState.PREPARING.value, reason=self._reason)
        return describe(self._parts)


def describe(parts: MirrorParts) -> pb.DescribeMirrorReply:
    """The reply of DescribeMirror."""
    link = parts.link()
    partitions = [_partition(parts.board, key) for key in sorted(parts.board)]
    states = [(FlowState(partition.state), partition.reason) for partition in partitions]
    outage = parts.outage()
    state, reason = gravest([*states, outage] if outage is not None else states)
    return pb.DescribeMirrorReply(
        link=link.name,
        link_epoch=link.epoch,
        state=state.value,
        reason=reason or link.reason,
        partitions=partitions,
        queued_bytes=parts.queue.used_bytes,
        groups_synced_at_ms=parts.groups_synced_at_ms(),
    )


def gravest(states: Iterable[tuple[FlowState, str]]) -> tuple[FlowState, str]:
    """The gravest state with the first reason for it; MIRRORING when there is nothing to mirror."""
    found = sorted(states, key=lambda state: _GRAVITY.index(state[0]))
    return found[0] if found else (FlowState.MIRRORING, "")


def _partition(board: FlowBoard, key: PartitionKey) -> pb.MirrorPartition:
    facts, lag = board.row(key).facts, board.lag(key)
    return pb.MirrorPartition(
        topic=key.topic,
        partition=key.partition,
        state=facts.state.value,
        reason=facts.reason,
        source_high_watermark=facts.progress.source_high_watermark,
        target_log_end_offset=facts.progress.target_log_end_offset,
        lag_records=lag.records,
        lag_bytes=lag.bytes,
        lag_ms=lag.ms,
        mirrored_bytes=facts.progress.mirrored_bytes,
        mirrored_records=facts.progress.mirrored_records,
    )
