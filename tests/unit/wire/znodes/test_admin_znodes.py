"""Requests of Kafka's older tools, as they stand in ZooKeeper."""

from __future__ import annotations

import pytest

from wire.znodes.admin_znodes import decode_election, decode_reassignments, encode_reassignments
from wire.znodes.documents import MalformedZnode

PLAN = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}'


def test_a_plan_is_read_and_written_as_kafkas_tool_writes_it() -> None:
    assert decode_reassignments(PLAN) == {("t", 0): (2, 3)}
    assert encode_reassignments({("t", 0): (2, 3)}) == PLAN


def test_an_election_names_partitions() -> None:
    assert decode_election(b'{"partitions":[{"topic":"t","partition":1},{"topic":"u","partition":0}]}') == [
        ("t", 1),
        ("u", 0),
    ]


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"no", "not JSON"),
        (b"[]", "not a list of objects"),
        (b'{"partitions":[1]}', "not a list of objects"),
        (b'{"partitions":[{"topic":"t","partition":"0","replicas":[1]}]}', "does not name a topic and a partition"),
        (b'{"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "not a list of whole numbers"),
    ],
)
def test_a_payload_that_is_no_request_is_refused_with_the_path(payload: bytes, complaint: str) -> None:
    with pytest.raises(MalformedZnode, match=complaint) as raised:
        decode_reassignments(payload)
    assert raised.value.path == "/admin/reassign_partitions"
