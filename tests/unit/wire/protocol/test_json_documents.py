"""JSON of other processes: a document or a ValueError, for any bytes."""

from __future__ import annotations

import pytest

from mirror.link.core.slots import decode_slots
from mirror.sharing.core.peers import parse_daemon
from mirror.translate.core.link_lease import decode_notice
from wire.protocol.json_documents import parse_json
from wire.rules.sync_reports import decode_report

DEEP = b"[" * 100_000
HUGE = b'{"slots":"0","problems":{},"daemon":"d","synced_ms_ago":1e999}'


@pytest.mark.parametrize("payload", [DEEP, b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 5000, b"\xff", b""])
def test_a_payload_that_cannot_be_used_is_a_value_error(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of its kinds
        parse_json(payload)


def test_documents_are_read() -> None:
    assert parse_json(b'{"a":[1,2.5,null,true]}') == {"a": [1, 2.5, None, True]}


@pytest.mark.parametrize("payload", [DEEP, HUGE])
def test_a_record_of_another_process_that_cannot_be_used_counts_for_nothing(payload: bytes) -> None:
    assert decode_slots(payload) == frozenset()
    assert decode_notice(payload) is None
    assert parse_daemon(payload, otherwise_named="other").name == "other"
    with pytest.raises(ValueError):  # noqa: PT011
        decode_report(payload.decode(), synced_at_ms=0)
