"""Maps the target's answer to an append to the flow's next step. The table of codes is in
`wire/protocol/messages/private.py`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec import Struct

from mirror.flow.core.flow_events import TargetRefusal
from wire.protocol.messages.mirror_append_messages import NO_DIVERGENCE


class Appended(Struct, frozen=True):
    """The batches are in the target's log."""


class SendAgain(Struct, frozen=True):
    """The target cannot take the batches now; the same batches are sent later."""

    reason: str
    is_link_suspected: bool = False


class Refusal(Struct, frozen=True):
    """Sending the same batches again would not help."""

    refusal: TargetRefusal
    reason: str


Verdict = Appended | SendAgain | Refusal

_REFUSALS = {
    ErrorCode.fenced_leader_epoch: TargetRefusal.STALE_LINK,
    ErrorCode.corrupt_message: TargetRefusal.CORRUPT,
    ErrorCode.invalid_record: TargetRefusal.CORRUPT,
    ErrorCode.message_too_large: TargetRefusal.UNACCEPTABLE,
    ErrorCode.record_list_too_large: TargetRefusal.UNACCEPTABLE,
    ErrorCode.unsupported_compression_type: TargetRefusal.UNACCEPTABLE,
    ErrorCode.invalid_timestamp: TargetRefusal.UNACCEPTABLE,
    ErrorCode.policy_violation: TargetRefusal.UNACCEPTABLE,
    ErrorCode.unknown_topic_or_partition: TargetRefusal.UNKNOWN_TOPIC,
    ErrorCode.inconsistent_topic_id: TargetRefusal.UNKNOWN_TOPIC,
    ErrorCode.unknown_topic_id: TargetRefusal.UNKNOWN_TOPIC,
}


def judge_append(
    error: ErrorCode,
    *,
    message: str,
    expected_log_end_offset: int,
    log_end_offset: int,
    link_epoch: int,
    divergence_epoch: int,
    divergence_end_offset: int,
) -> Verdict:
    """The verdict with its reason in a sentence."""
    if error is ErrorCode.none:
        return Appended()
    detail = f": {message}" if message else ""
    if error is ErrorCode.offset_out_of_range:
        if divergence_epoch > NO_DIVERGENCE:
            return Refusal(
                TargetRefusal.DIVERGED,
                f"histories diverge: the target's leader epoch {divergence_epoch} ends at {divergence_end_offset}, "
                f"the mirror would continue at {expected_log_end_offset}{detail}",
            )
        return Refusal(
            TargetRefusal.OFFSET_MISMATCH,
            f"the target's log ends at {log_end_offset}, not at {expected_log_end_offset}{detail}",
        )
    refusal = _REFUSALS.get(error)
    if refusal is TargetRefusal.STALE_LINK:
        return Refusal(refusal, f"the target has the link at epoch {link_epoch}{detail}")
    if refusal is not None:
        return Refusal(refusal, f"the target refuses with {error.name}{detail}")
    is_link_suspected = error in (ErrorCode.not_leader_or_follower, ErrorCode.unknown_leader_epoch)
    return SendAgain(f"the target answers {error.name}{detail}", is_link_suspected)
