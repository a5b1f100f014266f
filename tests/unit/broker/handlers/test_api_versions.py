"""ApiVersions: names of client software, as Apache Kafka 4.3.1 judges them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.cluster import api_versions
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity


async def error_of(version: int, name: str, software_version: str) -> tuple[ErrorCode, bool]:
    """The error, and whether the answer lists the APIs."""
    values = {"client_software_name": name, "client_software_version": software_version}
    request = build_entity(schemas.request_type(api_versions.API_KEY, version), values)
    context: Any = SimpleNamespace(api_version=version)
    answer = await api_versions.handle(request, context, None)
    return answer.error_code, bool(answer.api_keys)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software_version"), [("", "1"), ("x", ""), ("x y", "1"), ("x", "1 0"), ("-x", "1"), ("x.y-z_1", "1")]
)
async def test_a_software_name_that_kip_511_does_not_allow_is_refused(
    version: int, name: str, software_version: str
) -> None:
    assert await error_of(version, name, software_version) == (ErrorCode.invalid_request, False)


@pytest.mark.parametrize(
    ("name", "software_version"), [("x" * 300, "1"), ("apache-kafka-java", "4.3.1"), ("librdkafka", "2.16.0-RC1")]
)
async def test_other_names_are_accepted(name: str, software_version: str) -> None:
    assert await error_of(4, name, software_version) == (ErrorCode.none, True)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_older_versions_have_no_names(version: int) -> None:
    assert await error_of(version, "", "") == (ErrorCode.none, True)
