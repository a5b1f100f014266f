"""Versions of APIs, authorized operations, logins, features and tokens, on which this broker and a
real Apache Kafka must give the same answers.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.static.primitive import i64Timedelta

from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.compared_topics import both_make, same_answers
from tests.support.lone_brokers.two_brokers import Side

pytestmark = pytest.mark.integration

FIND_COORDINATOR, OFFSET_COMMIT, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE = 10, 8, 15, 69
PRODUCE, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, UPDATE_FEATURES = 0, 17, 18, 36, 57
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, DESCRIBE_QUORUM, DESCRIBE_SHARE_GROUP_OFFSETS = 60, 75, 55, 90
NOT_OFFERED = {
    *(55, 80, 81),  # KRaft's quorum
    *(76, 77, 78, 79),  # share groups
    *(83, 84, 85, 86, 87),  # the state of share groups, which brokers ask each other for
    *(88, 89),  # streams groups
    *(90, 91, 92),  # offsets of share groups
}
"""What Apache Kafka 4.3.1 advertises and this broker does not have."""


async def test_authorized_operations_are_complete_where_the_request_asks_for_them(sides: list[Side]) -> None:
    def compare() -> None:
        both_make(sides, "one")
        for side in sides:
            eventually_sync(lambda side=side: commits(side))  # type: ignore[misc]
        cluster = {"endpoint_type": 1, "include_fenced_brokers": False, "include_cluster_authorized_operations": False}
        paged = {"response_partition_limit": 10, "cursor": None}
        cases: dict[str, tuple[int, int, Mapping[str, Any]]] = {
            "the controllers": (DESCRIBE_CLUSTER, 1, {**cluster, "endpoint_type": 2}),
            "topics in pages": (
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                {"topics": [{"name": "one"}, {"name": "gone"}, {"name": "bad name"}], **paged},
            ),
        }
        for asks in (True, False):
            groups = {"include_authorized_operations": asks}
            for version in (0, 1, 2):
                asked = {**cluster, "include_cluster_authorized_operations": asks}
                cases[f"the cluster v{version} {asks}"] = (DESCRIBE_CLUSTER, version, asked)
            for version in (3, 5, 6):
                asked = {**groups, "groups": ["unknown", "simple"]}
                cases[f"groups v{version} {asks}"] = (DESCRIBE_GROUPS, version, asked)
            asked = {**groups, "group_ids": ["unknown", "simple"]}
            cases[f"consumer groups {asks}"] = (CONSUMER_GROUP_DESCRIBE, 1, asked)
        same_answers(sides, cases)

    def commits(side: Side) -> bool:
        """Whether the group has a commit now: its coordinator's topic is made by the first question
        for it.
        """
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        group = {"group_id": "simple", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        with RawClient(side.port) as client:
            client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["simple", "unknown"]})
            answer = client.call(OFFSET_COMMIT, 8, {**group, "topics": [{"name": "one", "partitions": [partition]}]})
            described = client.call(DESCRIBE_GROUPS, 5, {"groups": ["unknown"], "include_authorized_operations": False})
        return bool(answer.topics[0].partitions[0].error_code == 0 and described.groups[0].error_code == 0)

    await asyncio.to_thread(compare)


async def test_advertised_versions_are_the_same_and_old_produce_versions_are_refused(sides: list[Side]) -> None:
    def compare() -> None:
        ours, theirs = (advertised(side) for side in sides)
        assert {key: versions for key, versions in ours.items() if theirs.get(key) != versions} == {}
        assert theirs.keys() - ours.keys() == NOT_OFFERED
        for version in (0, 1, 2):  # listed, and refused (KAFKA-18659)
            assert [is_closed_by(side, PRODUCE, version) for side in sides] == [True, True]

    def advertised(side: Side) -> dict[int, tuple[int, int]]:
        software = {"client_software_name": "raw", "client_software_version": "1"}
        with RawClient(side.port) as client:
            answer = client.call(API_VERSIONS, 3, software)
        assert not [feature for feature in answer.supported_features if not feature.min_version]  # KAFKA-17011
        return {found.api_key: (found.min_version, found.max_version) for found in answer.api_keys}

    def is_closed_by(side: Side, api_key: int, version: int) -> bool:
        with RawClient(side.port) as client:
            client.send_bytes(struct.pack(">ihhih", 10, api_key, version, 1, -1))
            return not client.read_frame()

    await asyncio.to_thread(compare)


async def test_an_api_that_is_not_offered_is_refused_in_its_own_response(sides: list[Side]) -> None:
    """A client that ignores the advertised APIs keeps its connection, and learns the reason."""

    def ask() -> None:
        voters = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        quorum = sides[0].ask(DESCRIBE_QUORUM, 2, voters)
        assert quorum["error_code"] == "unsupported_version"
        group = {"group_id": "sharing", "topics": None}
        shared = sides[0].ask(DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": [group]})
        assert [(found["group_id"], found["error_code"]) for found in shared["groups"]] == [
            ("sharing", "unsupported_version")
        ]

    await asyncio.to_thread(ask)


async def test_logins_are_refused_and_features_are_fixed(sides: list[Side]) -> None:
    def compare() -> None:
        cases: dict[str, tuple[int, int, Mapping[str, Any]]] = {
            "a handshake": (SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            "a login": (SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0user\0password"}),
        }
        updates = {
            "the level that is in force": ("group.version", 1, 1),
            "a level that is too high": ("group.version", 2, 1),
            "a level below zero": ("group.version", -1, 1),
            "a lower level": ("transaction.version", 1, 1),
            "an unknown feature": ("nothing.version", 1, 1),
            "no level of an unknown feature": ("nothing.version", 0, 2),
        }
        for name, (feature, level, kind) in updates.items():
            for version in (0, 1, 2):
                update = {
                    "feature": feature,
                    "max_version_level": level,
                    "upgrade_type": kind,
                    "allow_downgrade": False,
                }
                asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
                cases[f"{name} v{version}"] = (UPDATE_FEATURES, version, asked)
        for kind in (0, 9):
            update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": kind}
            asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
            cases[f"upgrade type {kind}"] = (UPDATE_FEATURES, 2, asked)
        same_answers(sides, cases)
        update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
        asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
        assert sides[0].ask(UPDATE_FEATURES, 2, asked)["error_code"] == "invalid_update_version"

    await asyncio.to_thread(compare)


async def test_clients_without_an_identity_get_no_delegation_tokens(sides: list[Side]) -> None:
    """Error codes alone: kio does not read the timestamps of Apache Kafka's refusals."""
    period = i64Timedelta.parse(timedelta(milliseconds=-1))
    requests: dict[int, dict[str, Any]] = {
        38: {"renewers": [], "max_lifetime": period},
        39: {"hmac": b"none", "renew_period": period},
        40: {"hmac": b"none", "expiry_time_period": period},
        41: {"owners": None},
    }

    def error_code(side: Side, api_key: int) -> int:
        with RawClient(side.port) as client:
            client.send_call(api_key, 1, requests[api_key])
            return int.from_bytes(client.read_frame()[4:6])

    def compare() -> None:
        for api_key in requests:
            assert [error_code(side, api_key) for side in sides] == [64, 64]  # DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    await asyncio.to_thread(compare)
