"""The response of a failed handler can be encoded, is of the request's type and names an error, for
every request.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from broker.handlers.registry import load_handlers
from broker.network.error_responses import error_response
from tests.support.examples import examples
from tests.support.kio_messages import messages
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import PRIVATE_NAMES

HANDLERS = {key: module for key, module in load_handlers().items() if key not in PRIVATE_NAMES}
EACH_VERSION = [
    (key, version) for key, module in HANDLERS.items() for version in range(module.MIN_VERSION, module.MAX_VERSION + 1)
]


@pytest.mark.parametrize(("api_key", "version"), EACH_VERSION)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_an_error_response_of_every_request_can_be_read_back(api_key: int, version: int, data: st.DataObject) -> None:
    request = data.draw(messages(schemas.request_type(api_key, version)))
    entity = error_response(api_key, version, request)
    if entity is not None:
        encoded = schemas.encode(entity)
        assert schemas.decode(schemas.response_type(api_key, version), memoryview(encoded), 0) == entity


NOT_HERE = [
    (key, version)
    for key in api_key_map
    if key not in HANDLERS and (versions := schemas.schema_versions(key)) is not None
    for version in range(versions[0], versions[1] + 1)
]


@pytest.mark.parametrize(("api_key", "version"), NOT_HERE)
@settings(max_examples=examples(4))
@given(data=st.data())
def test_an_api_that_is_not_here_is_refused_in_its_own_response(
    api_key: int, version: int, data: st.DataObject
) -> None:
    request = data.draw(messages(schemas.request_type(api_key, version)))
    entity = error_response(api_key, version, request, error=ErrorCode.unsupported_version)
    if entity is not None:
        encoded = schemas.encode(entity)
        assert schemas.decode(schemas.response_type(api_key, version), memoryview(encoded), 0) == entity


def test_the_bare_names_of_a_request_are_named_with_the_error() -> None:
    request = schemas.request_type(77, 1)(group_ids=("sharing",), include_authorized_operations=False)
    entity = error_response(77, 1, request, error=ErrorCode.unsupported_version)
    assert entity is not None
    assert [(group.group_id, group.error_code) for group in entity.groups] == [
        ("sharing", ErrorCode.unsupported_version)
    ]


def test_the_parts_of_a_request_are_named_with_the_error() -> None:
    request_type = schemas.request_type(2, 7)
    module = __import__(request_type.__module__, fromlist=["x"])
    partition = module.ListOffsetsPartition(partition_index=3, current_leader_epoch=-1, timestamp=-1)
    topic = module.ListOffsetsTopic(name="orders", partitions=(partition,))
    request = request_type(replica_id=-1, isolation_level=0, topics=(topic,))
    entity = error_response(2, 7, request)
    assert entity is not None
    (answered,) = entity.topics
    assert answered.name == "orders"
    assert [(part.partition_index, part.error_code) for part in answered.partitions] == [
        (3, ErrorCode.unknown_server_error)
    ]


def test_a_response_with_an_error_of_its_own_has_nothing_else() -> None:
    request = schemas.request_type(35, 4)(topics=None)
    entity = error_response(35, 4, request)
    assert entity is not None
    assert (entity.error_code, entity.results) == (ErrorCode.unknown_server_error, ())


def entity_of(api_key: int, version: int, values: dict[str, Any]) -> Any:
    request = build_entity(schemas.request_type(api_key, version), values)
    return error_response(api_key, version, request, error=ErrorCode.cluster_authorization_failed)


def test_results_are_named_as_the_clients_of_these_apis_look_for_them() -> None:
    """Java's client finds no refusal under another name, and does not tell its user of it."""
    refused = ErrorCode.cluster_authorization_failed
    topics = [{"name": "orders", "partitions": [0, 1]}]
    directories = entity_of(34, 2, {"dirs": [{"path": "/a", "topics": topics}, {"path": "/b", "topics": topics}]})
    assert [
        (one.topic_name, [(part.partition_index, part.error_code) for part in one.partitions])
        for one in directories.results
    ] == [("orders", [(0, refused), (1, refused)])]
    entity = [{"entity_type": "user", "entity_name": "alice"}, {"entity_type": "client-id", "entity_name": None}]
    quotas = entity_of(49, 1, {"entries": [{"entity": entity, "ops": []}], "validate_only": False})
    assert [
        (one.error_code, [(part.entity_type, part.entity_name) for part in one.entity]) for one in quotas.entries
    ] == [(refused, [("user", "alice"), ("client-id", None)])]
    credential = {"mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    deleted, added = [{"name": "alice", "mechanism": 2}], [{"name": name, **credential} for name in ("alice", "bob")]
    users = entity_of(51, 0, {"deletions": deleted, "upsertions": added})
    assert [(one.user, one.error_code) for one in users.results] == [("alice", refused), ("bob", refused)]
