"""The group APIs' handlers in every version they advertise: requests in, responses that can be
encoded out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta, i64Timedelta

from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.handlers.registry import load_handlers
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.group_reports import GroupReports
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_states import Transaction
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from dr.sites.core.mirror_reports import sync_reports_of_mirror
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol import schemas
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME, link_claim
from wire.rules.sync_reports import SyncReport, encode_report

HANDLERS = {module.__name__.rpartition(".")[2]: module for module in load_handlers().values()}
SECOND = timedelta(seconds=10)
LINK = LinkRecord(
    name="l", source_site="a", target_site="b", epoch=4, active_site="b", group_whitelist=["linked"], is_routed=True
)


def broker_info(node_id: int) -> BrokerInfo:
    return BrokerInfo(node_id=node_id, endpoints=[Endpoint(listener="CLIENT", host="host", port=node_id)])


class ProducerIds:
    """Always the same id."""

    async def next_id(self) -> int:
        return 77


class NoMarkers:
    """Nothing is ever sent."""

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        raise AssertionError("there is no transaction")


class SilentSite:
    """The other site does not answer."""

    async def ask_site(self, *_: object) -> None:
        return None


class Doors(SimpleNamespace):
    """What the group handlers use of a broker."""

    authorizer = NO_AUTHORIZER


@pytest.fixture
async def doors(clock: ManualClock) -> AsyncIterator[Doors]:
    log = MemoryLog()
    log.epochs = {0: 1, 1: 1}
    partitions = [PartitionState(partition=index, leader=1) for index in range(2)]
    batch = ControlBatch(
        is_full=True,
        brokers=[broker_info(1)],
        topics=[
            TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=partitions),
            TopicInfo(name="t", topic_id=b"t" * 16, partitions=partitions),
        ],
        links=[LINK],
    )
    image = apply_batch(ClusterImage(site="a", node_id=1), batch)
    image = with_peer_view(
        image, SiteView(site="b", version=1, brokers=[broker_info(2001)], group_coordinators=[2001] * 8)
    )
    coordinator = GroupCoordinator(GroupLimits(initial_rebalance_delay_ms=0), log, ImageRouting(lambda: image), clock)
    coordinator.refresh_leadership()
    await eventually(lambda: not coordinator.is_loading)
    routing = TransactionRouting(lambda: image)
    transactions = TransactionCoordinator(
        TransactionLimits(), MemoryLog(), routing, clock, producer_ids=ProducerIds(), markers=NoMarkers()
    )
    yield Doors(
        groups=coordinator,
        transactions=transactions,
        transaction_routing=routing,
        active_site=SilentSite(),
        cluster=Cluster(image),
        group_reports=GroupReports(lambda: image, coordinator, transactions, clock),
        configs=SimpleNamespace(
            current=SimpleNamespace(offsets_partition_count=2, rebalance_protocols=("classic", "consumer"))
        ),
        producer_ids=ProducerIds(),
        topic_creator=SimpleNamespace(request_missing=lambda topic, image: None),
    )
    await coordinator.stop()
    await transactions.stop()


def request_of(api_key: int, version: int, **values: Any) -> Any:
    """A request of the version with those of the values that it has; nested parts are dicts with
    their class's name.
    """
    main = schemas.request_type(api_key, version)
    module = sys.modules[main.__module__]

    def build(kind: type[Any], given: dict[str, Any]) -> Any:
        fields = {}
        for field in dataclasses.fields(kind):
            if field.name in given:
                fields[field.name] = convert(given[field.name])
        return kind(**fields)

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            kind = next(getattr(module, name) for name in value["kinds"] if hasattr(module, name))
            return build(kind, value)
        return tuple(convert(item) for item in value) if isinstance(value, list) else value

    return build(main, values)


class AwaitedExchange:
    """The way to answer a handler that reads the frame itself."""

    def __init__(self, version: int) -> None:
        self.header = SimpleNamespace(api_version=version, body_position=0)
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def throttle_time_ms(self) -> int:
        return 0

    def defer_until(self, waited: asyncio.Future[Any], answering: Callable[[asyncio.Future[Any]], None]) -> None:
        waited.add_done_callback(answering)

    def count_errors(self, codes: Iterable[int]) -> None:
        self.errors = [code for code in codes if code]

    def reply_body(self, parts: Sequence[bytes], *, body_size: int) -> None:
        body = b"".join(parts)
        assert len(body) == body_size
        self.body.set_result(body)


async def ask(doors: Doors, name: str, version: int, *, software: str = "", **values: Any) -> Any:
    """The handler's response after a trip through its bytes."""
    module = HANDLERS[name]
    context = RequestContext(
        api_key=module.API_KEY,
        api_version=version,
        correlation_id=1,
        client_id="client",
        listener="CLIENT",
        client_address="127.0.0.1",
        client_software=software,
    )
    request = request_of(module.API_KEY, version, **values)
    assert schemas.decode(type(request), schemas.encode(request)) == request
    if hasattr(module, "handle_frame"):
        exchange = AwaitedExchange(version)
        module.handle_frame(schemas.encode(request), exchange, doors)
        return schemas.decode(schemas.response_type(module.API_KEY, version), await exchange.body)
    response = await module.handle(request, context, doors)
    decoded = schemas.decode(schemas.response_type(module.API_KEY, version), schemas.encode(response))
    assert decoded == response
    return decoded


def versions(name: str) -> list[int]:
    return list(range(HANDLERS[name].MIN_VERSION, HANDLERS[name].MAX_VERSION + 1))


def join_values(group: str, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": i32Timedelta.parse(SECOND),
        "rebalance_timeout": i32Timedelta.parse(SECOND),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"kinds": ["JoinGroupRequestProtocol"], "name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
        "reason": "because",
    }


async def joined(doors: Doors, group: str, version: int = 9) -> str:
    """A member alone in its group, assigned."""
    reply = await ask(doors, "join_group", version, **join_values(group))
    if reply.error_code is ErrorCode.member_id_required:
        reply = await ask(doors, "join_group", version, **join_values(group, reply.member_id))
    assert (reply.error_code, reply.generation_id, reply.leader) == (ErrorCode.none, 1, reply.member_id)
    assert [member.member_id for member in reply.members] == [reply.member_id]
    member: str = reply.member_id
    return member


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


def commit_values(group: str, topic: str = "t", **values: Any) -> dict[str, Any]:
    partition = {
        "kinds": ["OffsetCommitRequestPartition"],
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": 2,
        "committed_metadata": None,
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": i64Timedelta.parse(timedelta(milliseconds=-1)),
        "topics": [
            {
                "kinds": ["OffsetCommitRequestTopic"],
                "name": topic,
                "topic_id": uuid.UUID(bytes=topic[:1].encode() * 16),
                "partitions": [partition],
            }
        ],
        **values,
    }


def outcomes(response: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


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


@pytest.mark.parametrize("version", versions("offset_commit"))
async def test_offsets_are_committed_in_every_version(doors: Doors, version: int) -> None:
    assert outcomes(await ask(doors, "offset_commit", version, **commit_values("g"))) == [ErrorCode.none]
    unknown = await ask(doors, "offset_commit", version, **commit_values("g", topic="nobody-has-this"))
    by_name, by_id = ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id
    assert outcomes(unknown) == [by_id if version >= 10 else by_name]
    elsewhere = await ask(doors, "offset_commit", version, **commit_values("linked"))
    assert outcomes(elsewhere) == [ErrorCode.not_coordinator]


@pytest.mark.parametrize("version", versions("offset_fetch"))
@pytest.mark.parametrize("is_everything", [False, True])
async def test_offsets_are_fetched_in_every_version(doors: Doors, version: int, is_everything: bool) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))
    if is_everything and version < 2:
        pytest.skip("version 1 cannot ask for everything")
    kinds = ["OffsetFetchRequestTopics", "OffsetFetchRequestTopic"]
    named = {"kinds": kinds, "name": "t", "topic_id": uuid.UUID(bytes=b"t" * 16), "partition_indexes": [0, 1]}
    topics = None if is_everything else [named]
    groups = [
        {
            "kinds": ["OffsetFetchRequestGroup"],
            "group_id": group,
            "topics": topics,
            "member_id": None,
            "member_epoch": -1,
        }
        for group in ("g", "linked")
    ]
    response = await ask(
        doors, "offset_fetch", version, group_id="g", topics=topics, groups=groups, require_stable=True
    )
    found = response.groups[0] if version >= 8 else response
    offsets = [partition.committed_offset for partition in found.topics[0].partitions]
    assert offsets == ([5] if is_everything else [5, -1])
    if version >= 8:
        assert response.groups[1].error_code is ErrorCode.not_coordinator
    if version >= 10:
        assert found.topics[0].topic_id == uuid.UUID(bytes=b"t" * 16)


async def test_offsets_of_an_unknown_topic_id_are_told_so(doors: Doors) -> None:
    topic = {"kinds": ["OffsetFetchRequestTopics"], "topic_id": uuid.UUID(int=7), "partition_indexes": [0]}
    kinds = ["OffsetFetchRequestGroup"]
    group = {"kinds": kinds, "group_id": "g", "topics": [topic], "member_id": None, "member_epoch": -1}
    response = await ask(doors, "offset_fetch", 10, groups=[group], require_stable=False)
    assert outcomes(response.groups[0]) == [ErrorCode.unknown_topic_id]


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


class TellingSite:
    """The other site names its coordinator, and notes what it was asked."""

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
    """Views are a moment old, and librdkafka's transactional producers never ask a fourth time."""
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
    doors.cluster.replace(dataclasses.replace(whole, topics=topics))
    given = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    asking = asyncio.ensure_future(ask(doors, "find_coordinator", 2, **given))
    await asyncio.sleep(0)
    assert not asking.done()
    doors.cluster.replace(whole)
    response = await asking
    assert (response.error_code, response.node_id) == (ErrorCode.none, 1)


async def test_an_answer_does_not_wait_without_end_for_the_coordinator(doors: Doors) -> None:
    doors.cluster.replace(dataclasses.replace(doors.cluster.image, topics={}))
    given = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    response = await ask(doors, "find_coordinator", 2, **given)
    assert response.error_code is ErrorCode.coordinator_not_available


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


@pytest.mark.parametrize("version", versions("delete_groups"))
async def test_groups_are_deleted_in_every_version(doors: Doors, version: int) -> None:
    await ask(doors, "offset_commit", 9, **commit_values("g"))
    await joined(doors, "busy")
    response = await ask(doors, "delete_groups", version, groups_names=["g", "busy", "none", "linked"])
    assert [result.error_code for result in response.results] == [
        ErrorCode.none,
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
        ErrorCode.not_coordinator,
    ]


async def test_offsets_are_deleted_unless_somebody_subscribes(doors: Doors) -> None:
    async def delete(group: str, topic: str = "t") -> Any:
        partition = {"kinds": ["OffsetDeleteRequestPartition"], "partition_index": 0}
        topics = [{"kinds": ["OffsetDeleteRequestTopic"], "name": topic, "partitions": [partition]}]
        return await ask(doors, "offset_delete", 0, group_id=group, topics=topics)

    await ask(doors, "offset_commit", 9, **commit_values("g"))
    assert outcomes(await delete("g", "nobody-has-this")) == [ErrorCode.unknown_topic_or_partition]
    assert outcomes(await delete("g")) == [ErrorCode.none]
    assert (await delete("g")).error_code is ErrorCode.group_id_not_found
    await joined(doors, "busy")
    assert outcomes(await delete("busy")) == [ErrorCode.group_subscribed_to_topic]


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


@pytest.mark.parametrize("version", versions("mirror_offset_commit"))
async def test_a_mirror_commits_at_the_links_epoch_only(doors: Doors, version: int) -> None:
    async def mirrored(group: str, claim: str | None) -> list[ErrorCode]:
        values = commit_values(group, topic="not-here-yet", group_instance_id=claim)
        return outcomes(await ask(doors, "mirror_offset_commit", version, **values))

    assert await mirrored("linked", link_claim("l", 4)) == [ErrorCode.none]
    assert await mirrored("linked", link_claim("l", 3)) == [ErrorCode.fenced_leader_epoch]
    assert await mirrored("g", link_claim("l", 4)) == [ErrorCode.not_coordinator]
    assert await mirrored("linked", None) == [ErrorCode.invalid_request]


@pytest.mark.parametrize("version", versions("mirror_offset_commit"))
async def test_a_mirror_says_as_of_when_it_has_carried_all(doors: Doors, clock: ManualClock, version: int) -> None:
    before_ms = clock.now_ms()
    clock.advance(70)
    for link_epoch, said in ((4, str(before_ms)), (3, str(before_ms + 30)), (4, "soon")):
        values = commit_values("", group_instance_id=link_claim("l", link_epoch)) | {"topics": [], "member_id": said}
        assert outcomes(await ask(doors, "mirror_offset_commit", version, **values)) == []
    reported = await doors.group_reports.describe("l", is_brief=True)
    assert (set(reported.synced_ms_ago), reported.synced_at_ms) == ({70}, before_ms)


@pytest.mark.parametrize("version", versions("mirror_offset_commit"))
async def test_a_broker_keeps_the_word_of_each_daemon_of_a_mirror(
    doors: Doors, clock: ManualClock, version: int
) -> None:
    async def say(word: SyncReport, *, link_epoch: int = 4) -> None:
        claim = {"group_instance_id": link_claim("l", link_epoch), "member_id": str(word.synced_at_ms)}
        values = commit_values("", **claim)
        values["topics"][0]["partitions"][0]["committed_metadata"] = encode_report(word)
        assert outcomes(await ask(doors, "mirror_offset_commit", version, **values)) == [ErrorCode.none]

    half, rest = frozenset(range(120)), frozenset(range(120, 240))
    await say(SyncReport(daemon="m1", slots=half, problems={"billing": "refused"}))
    clock.advance(60_000)
    await say(SyncReport(daemon="m2", slots=rest, synced_at_ms=1700, synced_ms_ago=40))
    await say(SyncReport(daemon="m2", slots=half, synced_at_ms=1800, synced_ms_ago=10), link_epoch=3)
    reported = await doors.group_reports.describe("l", is_brief=True)
    assert list(reported.synced_ms_ago) == [-1] * 120 + [40] * 120
    assert {word.daemon: dict(word.problems) for word in reported.words} == {"m1": {"billing": "refused"}, "m2": {}}
    assert {word.daemon: word.received_ms_ago for word in reported.words} == {"m1": 60_000, "m2": 0}


@pytest.mark.parametrize("at", ["mirror", "broker"])
async def test_how_long_ago_groups_were_carried_is_known_whichever_clock_is_put_back(
    doors: Doors, clock: ManualClock, at: str
) -> None:
    """Else a mirror that is gone seems to be there until the clock has come so far again."""
    reports, hour_ms = doors.group_reports, 3_600_000
    reports.note_report("l", SyncReport(synced_at_ms=clock.now_ms() - 40, synced_ms_ago=40), link_epoch=4)
    if at == "broker":
        clock.set_now_ms(clock.now_ms() - hour_ms)
    ahead_ms = -hour_ms if at == "mirror" else hour_ms
    clock.advance(1_000)
    word = SyncReport(synced_at_ms=clock.now_ms() + ahead_ms, synced_ms_ago=40)
    reports.note_report("l", word, link_epoch=4)
    clock.advance(60_000)
    reported = await reports.describe("l", is_brief=True)
    assert set(reported.synced_ms_ago) == {60_040}
    synced_at_ms, _ = sync_reports_of_mirror([reported], now_ms=clock.now_ms())
    assert synced_at_ms == clock.now_ms() - 60_040


@pytest.mark.parametrize("version", versions("consumer_group_heartbeat"))
async def test_a_consumer_joins_is_described_and_leaves(doors: Doors, version: int) -> None:
    async def beat(member: str, epoch: int, **values: Any) -> Any:
        given = {"rebalance_timeout": i32Timedelta.parse(SECOND), "topic_partitions": (), **values}
        return await ask(
            doors, "consumer_group_heartbeat", version, group_id="k", member_id=member, member_epoch=epoch, **given
        )

    assert (await beat("a", 0)).error_code is ErrorCode.invalid_request
    joined = await beat("a", 0, subscribed_topic_names=("t",), instance_id="one")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "a", 1)
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [(0, 1)]
    assert (await beat("a", 1, topic_partitions=None)).assignment == joined.assignment
    owned = {"kinds": ["TopicPartitions"], "topic_id": uuid.UUID(bytes=b"t" * 16), "partitions": [0, 1]}
    await beat("a", 1, topic_partitions=[owned])
    assert (await beat("a", 1, topic_partitions=None)).assignment is None
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
        assert described.groups[1].error_code is ErrorCode.group_id_not_found
    listed = await ask(doors, "list_groups", 5, states_filter=(), types_filter=("consumer",))
    assert [(group.group_id, group.group_type) for group in listed.groups] == [("k", "consumer")]
    assert (await beat("a", 5)).error_code is ErrorCode.fenced_member_epoch
    assert (await beat("a", -1)).member_epoch == -1
    assert len((await beat("", 0, subscribed_topic_names=("t",))).member_id) == 36
