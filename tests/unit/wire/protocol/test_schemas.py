"""Entities from bytes, wherever the bytes are kept."""

from __future__ import annotations

import datetime as dt
import gc
import subprocess
import sys
import tracemalloc

import pytest
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


@pytest.mark.parametrize("api_key", sorted(schemas.FLEXIBLE_FROM))
def test_versions_with_tags_are_those_of_the_described_messages(api_key: int) -> None:
    described = schemas.schema_versions(api_key)
    assert described is not None
    for version in range(described[0], described[1] + 1):
        assert schemas.is_flexible(api_key, version) is schemas.request_type(api_key, version).__flexible__
    for version in (described[0] - 1, described[1] + 1):
        with pytest.raises(schemas.UnknownSchema):
            schemas.is_flexible(api_key, version)


def test_a_header_of_produce_or_fetch_loads_no_described_message() -> None:
    program = (
        "import sys; from wire.protocol import schemas; schemas.is_flexible(0, 9); schemas.is_flexible(1, 12); "
        "print([name for name in sys.modules if name.startswith(('kio.schema.produce', 'kio.schema.fetch'))])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_a_client_asks_for_in_vain_is_not_remembered() -> None:
    """There are four thousand million APIs and versions to ask a broker for."""
    tracemalloc.start()
    try:
        assert not any(schemas.has_schema(999, version) for version in range(10))
        before, _ = tracemalloc.get_traced_memory()
        assert not any(schemas.has_schema(999, version) for version in range(10, 5_000))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
