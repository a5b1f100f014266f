"""Entities from whatever buffer they were received into."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from wire import schemas
from wire.entity_building import build_entity

METADATA, VERSION = 3, 12
TOPIC_COUNT = 400
"""Enough for a response that the connection receives into a buffer of its own."""


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview, lambda encoded: memoryview(bytearray(encoded))])
def test_a_large_response_is_read_from_any_kind_of_buffer(buffer_type: type) -> None:
    topics = [
        {
            "error_code": ErrorCode.none,
            "name": f"t-{number}",
            "topic_id": uuid.UUID(int=number + 1),
            "is_internal": False,
            "partitions": (),
        }
        for number in range(TOPIC_COUNT)
    ]
    values = {
        "throttle_time": i32Timedelta.parse(timedelta(0)),
        "brokers": (),
        "cluster_id": "c",
        "controller_id": 1,
        "topics": topics,
    }
    response = build_entity(schemas.response_type(METADATA, VERSION), values)
    encoded = schemas.encode(response)
    assert schemas.decode(type(response), buffer_type(encoded)) == response
