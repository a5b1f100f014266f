"""The group APIs' handlers in every version they advertise: requests in, responses that can be
encoded out.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from msgspec.structs import replace

from broker.groups.core.group_states import GroupState
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import with_peer_view
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.group_doors import (
    LINK,
    SECOND,
    Doors,
    ask,
    broker_info,
    commit_values,
    group_doors,
    join_values,
    joined,
    versions,
)
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.cluster_pb2 import SiteView
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME


@pytest.fixture
async def doors(clock: ManualClock) -> AsyncIterator[Doors]:
    async with group_doors(clock) as made:
        yield made


def sync_values(group: str, member: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "generation_id": 1,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"kinds": ["SyncGroupRequestAssignment"], "member_id": member, "assignment": b"mine"}],
    }


@pytest.mark.parametrize("version", versions("join_group"))
async def test_a_member_joins_and_leaves_in_every_version(doors: Doors, version: int) -> None:
    member = await joined(doors, "g", version)
    refused = await ask(doors, "join_group", version, **join_values("", ""))
    assert refused.error_code is ErrorCode.invalid_group_id
    synced = await ask(doors, "sync_group", min(version, 5), **sync_values("g", member))
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
    heartbeat = {"group_id": "g", "generation_id": 1, "member_id": member, "group_instance_id": None}
    assert (await ask(doors, "heartbeat", min(version, 4), **heartbeat)).error_code is ErrorCode.none
    leaving = {"kinds": ["MemberIdentity"], "member_id": member, "group_instance_id": None, "reason": None}
    left = await ask(doors, "leave_group", min(version, 5), group_id="g", member_id=member, members=[leaving])
    assert left.error_code is ErrorCode.none
    again = await ask(doors, "leave_group", min(version, 5), group_id="g", member_id=member, members=[leaving])
    assert (again.members[0].error_code if version >= 3 else again.error_code) is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", versions("find_coordinator"))
async def test_the_coordinator_is_found_at_the_site_that_has_the_group(doors: Doors, version: int) -> None:
    async def node(group: str, *, software: str = "", key_type: int = 0) -> tuple[ErrorCode, int]:
        response = await ask(
            doors,
            "find_coordinator",
            version,
            software=software,
            key=group,
            key_type=key_type,
            coordinator_keys=[group],
        )
        found = response.coordinators[0] if version >= 4 else response
        return found.error_code, found.node_id

    assert await node("g") == (ErrorCode.none, 1)
    assert await node("linked") == (ErrorCode.none, 2001)
    assert await node("linked", software=CLIENT_SOFTWARE_NAME) == (ErrorCode.none, 1)
    if version >= 1:
        assert await node("transactions", key_type=1) == (ErrorCode.coordinator_not_available, -1)
        # a code that clients would repeat made them ask for ever
        assert await node("g:topic:0", key_type=2) == (ErrorCode.invalid_request, -1)


class TellingSite:
    """The other site names its coordinator, and records the questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def ask_site(self, image: ClusterImage, site: str, context: RequestContext, request: Any) -> Any:
        keys = request.coordinator_keys if context.api_version >= 4 else (request.key,)
        self.asked.append(keys)
        build = builder(10, context.api_version)
        fields = {"error_code": ErrorCode.none, "error_message": None, "node_id": 2001, "host": "inside", "port": 1}
        if context.api_version < 4:
            return build.response(**fields)
        return build.response(coordinators=tuple(build.part("Coordinator", key=key, **fields) for key in keys))


@pytest.mark.parametrize("version", [2, 4])
async def test_the_site_of_a_group_is_asked_while_its_view_names_no_coordinator(doors: Doors, version: int) -> None:
    """Views are a moment old, and librdkafka's transactional producers ask at most three times."""
    view = SiteView(site="b", version=2, brokers=[broker_info(2001)], group_coordinators=[])
    doors.cluster.replace(with_peer_view(doors.cluster.image, view))
    doors.active_site = TellingSite()
    given = {"key": "linked", "key_type": 0, "coordinator_keys": ["linked", "g"]}
    response = await ask(doors, "find_coordinator", version, **given)
    found = response.coordinators if version >= 4 else (response,)
    # under the address that the client's listener has for it
    assert (found[0].node_id, found[0].host, found[0].port) == (2001, "host", 2001)
    assert doors.active_site.asked == [("linked",)]
    assert [each.node_id for each in found] == [2001, 1][: len(found)]


async def test_an_answer_waits_a_little_for_the_coordinator(doors: Doors) -> None:
    whole = doors.cluster.image
    topics = {name: topic for name, topic in whole.topics.items() if name != OFFSETS_TOPIC}
    doors.cluster.replace(replace(whole, topics=topics))
    given = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    asking = asyncio.ensure_future(ask(doors, "find_coordinator", 2, **given))
    await asyncio.sleep(0)
    assert not asking.done()
    doors.cluster.replace(whole)
    response = await asking
    assert (response.error_code, response.node_id) == (ErrorCode.none, 1)


async def test_an_answer_does_not_wait_without_end_for_the_coordinator(doors: Doors) -> None:
    doors.cluster.replace(replace(doors.cluster.image, topics={}))
    given = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    response = await ask(doors, "find_coordinator", 2, **given)
    assert response.error_code is ErrorCode.coordinator_not_available


async def test_a_sync_must_name_its_protocol(doors: Doors) -> None:
    member = await joined(doors, "g")
    unnamed = {**sync_values("g", member), "protocol_name": None}
    assert (await ask(doors, "sync_group", 5, **unnamed)).error_code is ErrorCode.inconsistent_group_protocol
    assert (await ask(doors, "sync_group", 4, **unnamed)).error_code is ErrorCode.none


async def test_members_keep_their_assignments_while_a_rebalance_is_prepared(doors: Doors) -> None:
    member = await joined(doors, "g")
    await ask(doors, "sync_group", 5, **sync_values("g", member))
    newcomer = asyncio.create_task(ask(doors, "join_group", 3, **join_values("g", "")))
    await eventually(lambda: doors.groups.describe("g", is_own_tool=False).state is GroupState.PREPARING_REBALANCE)
    (described,) = (await ask(doors, "describe_groups", 5, groups=["g"], include_authorized_operations=False)).groups
    former, _ = described.members
    assert (former.member_metadata, former.member_assignment) == (b"", b"mine")
    newcomer.cancel()


@pytest.mark.parametrize("version", versions("describe_groups"))
async def test_groups_are_described_in_every_version(doors: Doors, version: int) -> None:
    member = await joined(doors, "g")
    await ask(doors, "sync_group", 5, **sync_values("g", member))
    groups = ["g", "none", "linked"]
    response = await ask(doors, "describe_groups", version, groups=groups, include_authorized_operations=False)
    stable, dead, elsewhere = response.groups
    assert (stable.group_state, stable.protocol_data, stable.members[0].member_assignment) == (
        "Stable",
        "range",
        b"mine",
    )
    assert stable.members[0].client_host == "/127.0.0.1"
    assert dead.group_state == "Dead"
    assert (dead.error_code is ErrorCode.group_id_not_found) is (version >= 6)
    assert elsewhere.error_code is ErrorCode.not_coordinator


@pytest.mark.parametrize("version", versions("list_groups"))
async def test_groups_are_listed_and_filtered_in_every_version(doors: Doors, version: int) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))

    async def listed(states: list[str], types: list[str]) -> list[str]:
        response = await ask(doors, "list_groups", version, states_filter=states, types_filter=types)
        assert response.error_code is ErrorCode.none
        return [group.group_id for group in response.groups]

    assert await listed([], []) == ["g"]
    assert await listed(["empty"], ["Classic"]) == ["g"]
    if version >= 4:
        assert await listed(["Stable"], []) == []
    if version >= 5:
        assert await listed([], ["consumer"]) == []


async def test_a_paused_broker_reports_no_groups(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))
    assert (await doors.group_reports.describe(LINK.name)).partitions
    monkeypatch.setattr(doors.groups._led, "_may_answer", lambda: False)
    response = await ask(doors, "list_groups", 5, states_filter=[], types_filter=[])
    assert (response.error_code, response.groups) == (ErrorCode.coordinator_load_in_progress, ())
    reported = await doors.group_reports.describe(LINK.name)
    assert (list(reported.partitions), list(reported.groups)) == ([], [])


async def test_a_classic_group_is_no_consumer_group(doors: Doors) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))
    answer = await ask(doors, "consumer_group_describe", 1, group_ids=("g",), include_authorized_operations=False)
    assert answer.groups[0].error_code is ErrorCode.group_id_not_found
    assert answer.groups[0].error_message == "group g uses the classic protocol"


@pytest.mark.parametrize("version", versions("delete_groups"))
async def test_groups_are_deleted_in_every_version(doors: Doors, version: int) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))
    await joined(doors, "busy")
    response = await ask(doors, "delete_groups", version, groups_names=["g", "busy", "none", "linked", ""])
    assert [result.error_code for result in response.results] == [
        ErrorCode.none,
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
        ErrorCode.not_coordinator,
        ErrorCode.group_id_not_found,
    ]


async def test_the_group_without_a_name_is_deleted_with_its_offsets(doors: Doors) -> None:
    await ask(doors, "offset_commit", 9, **commit_values(""))
    response = await ask(doors, "delete_groups", 2, groups_names=[""])
    assert response.results[0].error_code is ErrorCode.none


@pytest.mark.parametrize("version", versions("init_producer_id"))
async def test_producers_get_an_id_or_their_next_epoch(doors: Doors, version: int) -> None:
    async def given(transactional_id: str | None, producer_id: int, epoch: int) -> tuple[ErrorCode, int, int]:
        response = await ask(
            doors,
            "init_producer_id",
            version,
            transactional_id=transactional_id,
            transaction_timeout=i32Timedelta.parse(SECOND),
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return response.error_code, response.producer_id, response.producer_epoch

    assert await given(None, -1, -1) == (ErrorCode.none, 77, 0)
    assert await given("tx", -1, -1) == (ErrorCode.not_coordinator, -1, -1)
    if version >= 3:
        assert await given(None, 5, 3) == (ErrorCode.none, 5, 4)


async def beat(doors: Doors, version: int, member: str, epoch: int, **values: Any) -> Any:
    given = {"group_id": "k", "rebalance_timeout": i32Timedelta.parse(SECOND), "topic_partitions": (), **values}
    return await ask(doors, "consumer_group_heartbeat", version, member_id=member, member_epoch=epoch, **given)


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"group_id": " "}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"rebalance_timeout": i32Timedelta.parse(timedelta(milliseconds=-1))}, ErrorCode.invalid_request),
        ({"server_assignor": ""}, ErrorCode.unsupported_assignor),
    ],
)
async def test_members_must_say_what_kafka_asks_of_them(
    doors: Doors, version: int, values: dict[str, Any], error: ErrorCode
) -> None:
    refused = await beat(doors, version, "a", 0, **{"subscribed_topic_names": ("t",), **values})
    assert refused.error_code is error


async def test_of_equally_many_requests_the_first_assignor_of_the_broker_wins(doors: Doors) -> None:
    for member, assignor in (("a", "range"), ("b", "uniform")):
        await beat(doors, 1, member, 0, subscribed_topic_names=("t",), server_assignor=assignor)
    answer = await ask(doors, "consumer_group_describe", 1, group_ids=("k",), include_authorized_operations=False)
    assert answer.groups[0].assignor_name == "uniform"


async def test_members_of_version_1_make_their_own_ids(doors: Doors) -> None:
    assert (await beat(doors, 1, "", 0, subscribed_topic_names=("t",))).error_code is ErrorCode.invalid_request


async def test_a_member_may_join_without_a_subscription(doors: Doors) -> None:
    joined = await beat(doors, 1, "a", 0, subscribed_topic_regex="")
    assert (joined.error_code, joined.assignment.topic_partitions) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
async def test_a_consumer_joins_is_described_and_leaves(doors: Doors, version: int) -> None:
    joined = await beat(doors, version, "a", 0, subscribed_topic_names=("t",), instance_id="one")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "a", 1)
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [(0, 1)]
    assert (await beat(doors, version, "a", 1, topic_partitions=None)).assignment == joined.assignment
    owned = {"kinds": ["TopicPartitions"], "topic_id": uuid.UUID(bytes=b"t" * 16), "partitions": [0, 1]}
    await beat(doors, version, "a", 1, topic_partitions=[owned])
    assert (await beat(doors, version, "a", 1, topic_partitions=None)).assignment is None
    for described_version in versions("consumer_group_describe"):
        described = await ask(
            doors,
            "consumer_group_describe",
            described_version,
            group_ids=("k", "none"),
            include_authorized_operations=False,
        )
        assert [group.group_state for group in described.groups] == ["Stable", ""]
        (member,) = described.groups[0].members
        assert (member.member_id, member.instance_id, member.member_epoch) == ("a", "one", 1)
        assert member.client_host == "/127.0.0.1"
        refusal = described.groups[1]
        assert (refusal.error_code, refusal.error_message) == (
            ErrorCode.group_id_not_found,
            "group none does not exist",
        )
    listed = await ask(doors, "list_groups", 5, states_filter=(), types_filter=("consumer",))
    assert [(group.group_id, group.group_type) for group in listed.groups] == [("k", "consumer")]
    assert (await beat(doors, version, "a", 5)).error_code is ErrorCode.fenced_member_epoch
    assert (await beat(doors, version, "a", -1)).member_epoch == -1
    if version == 0:
        assert len((await beat(doors, version, "", 0, subscribed_topic_names=("t",))).member_id) == 36
