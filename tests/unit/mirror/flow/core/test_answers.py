"""The verdict on each error code of an append."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from mirror.flow.core.answers import Appended, Refusal, SendAgain, judge_append
from mirror.flow.core.flow_events import TargetRefusal


@pytest.mark.parametrize(
    ("error", "divergence_epoch", "wanted"),
    [
        (ErrorCode.none, -1, Appended),
        (ErrorCode.not_leader_or_follower, -1, SendAgain),
        (ErrorCode.kafka_storage_error, -1, SendAgain),
        (ErrorCode.unknown_leader_epoch, -1, SendAgain),
        (ErrorCode.offset_out_of_range, -1, TargetRefusal.OFFSET_MISMATCH),
        (ErrorCode.offset_out_of_range, 3, TargetRefusal.DIVERGED),
        (ErrorCode.fenced_leader_epoch, -1, TargetRefusal.STALE_LINK),
        (ErrorCode.corrupt_message, -1, TargetRefusal.CORRUPT),
        (ErrorCode.inconsistent_topic_id, -1, TargetRefusal.UNKNOWN_TOPIC),
    ],
)
def test_every_code_of_the_table_has_a_verdict(error: ErrorCode, divergence_epoch: int, wanted: object) -> None:
    verdict = judge_append(
        error,
        message="",
        expected_log_end_offset=5,
        log_end_offset=3,
        link_epoch=1,
        divergence_epoch=divergence_epoch,
        divergence_end_offset=2,
    )
    assert (verdict.refusal if isinstance(verdict, Refusal) else type(verdict)) == wanted
