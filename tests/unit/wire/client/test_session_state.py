"""The state of a fetch session at the client (KIP-227)."""

from __future__ import annotations

from wire.client.session_state import FetchSession
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)


def test_a_session_names_only_changed_partitions_and_all_after_a_reset() -> None:
    session: FetchSession[TopicPartition, tuple[int, int]] = FetchSession()
    other = TopicPartition("orders", 1)
    first = session.next_request({KEY: (0, 0), other: (0, 0)})
    assert (first.session_id, first.session_epoch, set(first.named)) == (0, 0, {KEY, other})
    session.answered(77)
    second = session.next_request({KEY: (5, 0), other: (0, 0)})
    assert (second.session_id, second.session_epoch, set(second.named)) == (77, 1, {KEY})
    session.answered(77)
    third = session.next_request({KEY: (5, 0)})
    assert (third.session_epoch, set(third.named), third.forgotten) == (2, set(), {other})
    session.reset()
    assert session.next_request({KEY: (5, 0)}).named == {KEY: (5, 0)}
