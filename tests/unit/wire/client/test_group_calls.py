"""Offsets and listings of groups, asked of the right coordinators and brokers: one that fails hides
no answer of the others.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.scripted_site import Site
from wire.client.client_errors import TransientBrokerError, Unreachable, broker_error
from wire.client.connection import Connection
from wire.client.raw_client import (
    KafkaClient,
)
from wire.client.requests.group_requests import CommittedOffset, FetchedOffset, GroupListing
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.group_offset_messages import CARRIED_OFFSETS, MIRROR_GROUP_OFFSETS
from wire.protocol.messages.private import MIRROR_OFFSET_COMMIT, parse_link_claim


async def test_group_is_followed_to_its_new_coordinator(site: Site, client: KafkaClient) -> None:
    offsets = {("t", 0): CommittedOffset(7)}
    assert await client.commit("g", offsets) == {("t", 0): ErrorCode.none}
    site.coordinator_id = 2
    assert await client.commit("g", offsets) == {("t", 0): ErrorCode.none}
    assert len(site.brokers[2].requests(8)) == 1


async def test_mirror_commit_carries_its_link(site: Site, client: KafkaClient) -> None:
    site.brokers[1].on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    await client.mirror_offset_commit("g", {("t", 0): CommittedOffset(7, 2, "m")}, link="a-b", link_epoch=5)
    request = site.brokers[1].requests(MIRROR_OFFSET_COMMIT)[0]
    assert parse_link_claim(request.group_instance_id) == ("a-b", 5)
    assert request.topics[0].partitions[0].committed_leader_epoch == 2


def mirrored(request: Any, header: Any) -> dict[str, Any]:
    """Refuses the offsets of group "full", and knows nothing of group "moved"."""
    codes = {"moved": ErrorCode.not_coordinator, "busy": ErrorCode.non_empty_group}
    refused = {"topic": "t", "partition_index": 0, "error_code": ErrorCode.offset_metadata_too_large}
    return {
        "outcomes": [
            {
                "error_code": codes.get(group.group_id, ErrorCode.none),
                "refused": [refused] if group.group_id == "full" else [],
            }
            for group in request.groups
        ]
    }


async def test_a_mirror_commits_many_groups_in_one_request(site: Site, client: KafkaClient) -> None:
    broker = site.brokers[1]
    broker.on(MIRROR_GROUP_OFFSETS, mirrored)
    broker.on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    wanted = {name: {("t", 0): CommittedOffset(7, 2, "m")} for name in ("g", "busy", "full", "moved")}
    found = await client.mirror_group_offsets(wanted, link="a-b", link_epoch=5)
    at = ("t", 0)
    assert found == {
        "g": {at: ErrorCode.none},
        "busy": {at: ErrorCode.non_empty_group},
        "full": {at: ErrorCode.offset_metadata_too_large},
        "moved": {at: ErrorCode.none},
    }
    (request,) = broker.requests(MIRROR_GROUP_OFFSETS)
    assert (request.link, request.link_epoch, len(request.groups)) == ("a-b", 5, 4)
    (alone,) = broker.requests(MIRROR_OFFSET_COMMIT)
    assert alone.group_id == "moved", "the coordinator was asked for again"


async def test_carried_offsets_are_asked_for_in_one_request(site: Site, client: KafkaClient) -> None:
    offset = {"topic": "t", "partition_index": 0, "committed_offset": 7}

    def answer(request: Any, header: Any) -> dict[str, Any]:
        moved = {"error_code": ErrorCode.not_coordinator, "offsets": []}
        found = {"error_code": ErrorCode.none, "offsets": [offset]}
        return {"groups": [found if group_id == "g" else moved for group_id in request.group_ids]}

    site.brokers[1].on(CARRIED_OFFSETS, answer)
    assert await client.carried_offsets(["g", "moved"], link="a-b", link_epoch=5) == {"g": {("t", 0): 7}}
    (request,) = site.brokers[1].requests(CARRIED_OFFSETS)
    assert (request.link, request.link_epoch, list(request.group_ids)) == ("a-b", 5, ["g", "moved"])


async def test_a_broker_of_an_earlier_release_names_no_carried_offsets(client: KafkaClient) -> None:
    assert await client.carried_offsets(["g"], link="a-b", link_epoch=5) == {}


async def test_a_broker_that_does_not_know_the_request_takes_each_group_alone(site: Site, client: KafkaClient) -> None:
    site.brokers[1].on(MIRROR_OFFSET_COMMIT, lambda request, header: site.committed(1))
    wanted = {name: {("t", 0): CommittedOffset(7)} for name in ("g0", "g1")}
    found = await client.mirror_group_offsets(wanted, link="a-b", link_epoch=5)
    assert found == {name: {("t", 0): ErrorCode.none} for name in wanted}
    assert len(site.brokers[1].requests(MIRROR_OFFSET_COMMIT)) == 2


async def test_a_failure_of_one_group_or_coordinator_is_that_groups_answer_alone(
    client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def coordinator(group_id: str) -> int:
        if group_id == "new":
            raise broker_error(ErrorCode.coordinator_not_available)
        return 2 if group_id == "away" else 1

    async def connection(node_id: int) -> int:
        if node_id == 2:
            raise Unreachable("connection refused")
        return node_id

    async def committed(_: object, group_ids: list[str]) -> dict[str, dict[PartitionKey, FetchedOffset]]:
        return {group_id: {} for group_id in group_ids}

    monkeypatch.setattr(client, "coordinator", coordinator)
    monkeypatch.setattr(client, "connection", connection)
    monkeypatch.setattr("wire.client.group_calls.request_committed_by_groups", committed)
    found = await client.committed_by_groups(["well", "new", "away", "other"])
    assert {group: type(answer) for group, answer in found.items()} == {
        "well": dict,
        "other": dict,
        "new": TransientBrokerError,
        "away": Unreachable,
    }


async def test_a_broker_that_does_not_tell_its_groups_does_not_hide_those_of_the_others(
    site: Site, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def groups(connection: Connection) -> list[GroupListing]:
        if connection.address == site.bootstrap[0]:
            raise Unreachable("connection reset")
        return [GroupListing("billing", "consumer", "Stable")]

    monkeypatch.setattr("wire.client.group_calls.request_groups", groups)
    found = await client.groups_by_broker()
    assert sorted(str(answer) for answer in found.values()) == sorted(
        ["connection reset", str([GroupListing("billing", "consumer", "Stable")])]
    )
    (reported,) = [node_id for node_id, answer in found.items() if isinstance(answer, list)]
    assert (await client.groups_by_broker(leave_out=found.keys() - {reported})).keys() == {reported}
