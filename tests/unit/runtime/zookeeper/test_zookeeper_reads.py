"""Many znodes in one request."""

from __future__ import annotations

import struct

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.serialization import GetData

from runtime.zookeeper.reads import MultiRead, SetWatches

STAT = (5, 6, 7, 8, 9, 0, 0, 11, 3, 0, 5)
END = struct.pack("!iBi", -1, 1, -1)


def node(payload: bytes | None) -> bytes:
    size = -1 if payload is None else len(payload)
    return struct.pack("!iBii", 4, 0, 0, size) + (payload or b"") + struct.pack("!qqqqiiiqiiq", *STAT)


def error(code: int) -> bytes:
    return struct.pack("!iBii", -1, 0, code, code)


def test_a_request_is_a_row_of_ordinary_reads() -> None:
    wanted = b"".join(struct.pack("!iBi", 4, 0, -1) + bytes(GetData(path, None).serialize()) for path in ("/a", "/ü"))
    assert MultiRead(["/a", "/ü"]).serialize() == wanted + END


def test_an_answer_has_nodes_and_gaps() -> None:
    answer = b"head" + node(b"abc") + error(NoNodeError.code) + node(None) + END
    found = MultiRead(["/a", "/b", "/c"]).deserialize(answer, 4)
    assert [None if one is None else one[0] for one in found] == [b"abc", None, b""]
    assert found[0] is not None
    assert tuple(found[0][1]) == STAT


def test_a_node_that_may_not_be_read_fails_the_read() -> None:
    with pytest.raises(NoAuthError):
        MultiRead(["/a", "/b"]).deserialize(node(b"abc") + error(NoAuthError.code) + END, 0)


def test_watches_are_registered_before_their_request_is_sent() -> None:
    registered: list[str] = []
    request = SetWatches(found=["/a", "/ü"], missing=["/b"], read_zxid=7, register=lambda: registered.append("all"))
    assert not registered
    strings = [struct.pack("!i", len(path.encode())) + path.encode() for path in ("/a", "/ü", "/b")]
    lists = struct.pack("!i", 2) + strings[0] + strings[1] + struct.pack("!i", 1) + strings[2] + struct.pack("!i", 0)
    assert request.serialize() == struct.pack("!q", 7) + lists
    assert registered == ["all"]
