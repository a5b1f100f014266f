"""Entities from bytes, wherever the bytes are kept."""

from __future__ import annotations

import datetime as dt

from kio.schema.errors import ErrorCode

from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

LIST_GROUPS = 16


def test_an_answer_too_large_for_the_shared_buffer_is_decoded_from_its_own_writable_one() -> None:
    response = schemas.response_type(LIST_GROUPS, 4)
    groups = [{"group_id": "g", "protocol_type": "consumer", "group_state": "Stable"}]
    values = {"throttle_time": dt.timedelta(0), "error_code": ErrorCode.none, "groups": groups}
    sent = build_entity(response, values)
    assert schemas.decode(response, memoryview(bytearray(schemas.encode(sent)))) == sent
