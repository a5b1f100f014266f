"""Handlers of groups' offsets over a coordinator in memory: commits, fetches, deletions, and the
commits of mirrors.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from dr.sites.core.mirror_reports import sync_reports_of_mirror
from tests.support.clock import ManualClock
from tests.support.memory.group_doors import (
    HANDLERS,
    AwaitedExchange,
    Doors,
    ask,
    commit_values,
    group_doors,
    joined,
    request_of,
    versions,
)
from wire.protocol import schemas
from wire.protocol.messages.private import link_claim
from wire.rules.sync_reports import SyncReport, encode_report


@pytest.fixture
async def doors(clock: ManualClock) -> AsyncIterator[Doors]:
    async with group_doors(clock) as made:
        yield made


def outcomes(response: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


async def test_an_acknowledged_commit_that_waits_leaves_only_while_the_site_may_acknowledge(doors: Doors) -> None:
    """It may wait behind the responses of earlier commits, for longer than the lease."""
    version, module, allowed = 9, HANDLERS["offset_commit"], {"g"}
    doors.groups = SimpleNamespace(commit=doors.groups.commit, may_acknowledge=allowed.__contains__)
    exchange = AwaitedExchange(version)
    request = request_of(module.API_KEY, version, **commit_values("g"))
    module.handle_frame(schemas.encode(request), exchange, doors)
    await exchange.body
    assert exchange.may_be_sent is not None
    assert exchange.may_be_sent()
    allowed.clear()
    assert not exchange.may_be_sent()


@pytest.mark.parametrize("version", versions("offset_commit"))
async def test_offsets_are_committed_in_every_version(doors: Doors, version: int) -> None:
    assert outcomes(await ask(doors, "offset_commit", version, **commit_values("g"))) == [ErrorCode.none]
    unknown = await ask(doors, "offset_commit", version, **commit_values("g", topic="unknown-topic"))
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


async def test_offsets_of_an_unknown_topic_id_get_an_error(doors: Doors) -> None:
    topic = {"kinds": ["OffsetFetchRequestTopics"], "topic_id": uuid.UUID(int=7), "partition_indexes": [0]}
    kinds = ["OffsetFetchRequestGroup"]
    group = {"kinds": kinds, "group_id": "g", "topics": [topic], "member_id": None, "member_epoch": -1}
    response = await ask(doors, "offset_fetch", 10, groups=[group], require_stable=False)
    assert outcomes(response.groups[0]) == [ErrorCode.unknown_topic_id]


async def test_offsets_are_deleted_unless_a_member_subscribes(doors: Doors) -> None:
    async def delete(group: str, topic: str = "t") -> Any:
        partition = {"kinds": ["OffsetDeleteRequestPartition"], "partition_index": 0}
        topics = [{"kinds": ["OffsetDeleteRequestTopic"], "name": topic, "partitions": [partition]}]
        return await ask(doors, "offset_delete", 0, group_id=group, topics=topics)

    await ask(doors, "offset_commit", 9, **commit_values("g"))
    assert outcomes(await delete("g", "unknown-topic")) == [ErrorCode.unknown_topic_or_partition]
    assert outcomes(await delete("g")) == [ErrorCode.none]
    assert (await delete("g")).error_code is ErrorCode.group_id_not_found
    await joined(doors, "busy")
    assert outcomes(await delete("busy")) == [ErrorCode.group_subscribed_to_topic]


@pytest.mark.parametrize("version", versions("mirror_offset_commit"))
async def test_a_mirror_commits_at_the_links_epoch_only(doors: Doors, version: int) -> None:
    async def mirrored(group: str, claim: str | None) -> list[ErrorCode]:
        values = commit_values(group, topic="not-here-yet", group_instance_id=claim)
        return outcomes(await ask(doors, "mirror_offset_commit", version, **values))

    assert await mirrored("linked", link_claim("l", 4)) == [ErrorCode.none]
    assert await mirrored("linked", link_claim("l", 3)) == [ErrorCode.fenced_leader_epoch]
    assert await mirrored("g", link_claim("l", 4)) == [ErrorCode.not_coordinator]
    assert await mirrored("linked", None) == [ErrorCode.invalid_request]


async def test_a_mirror_commits_several_groups_each_with_its_own_outcome(doors: Doors) -> None:
    offset = {
        "kinds": ["MirroredOffset"],
        "topic": "not-here-yet",
        "partition_index": 0,
        "committed_offset": 7,
        "committed_leader_epoch": 2,
        "committed_metadata": "m",
    }

    async def mirrored(*groups: str, link_epoch: int = 4) -> list[ErrorCode]:
        values = [{"kinds": ["MirroredGroup"], "group_id": group, "offsets": [offset]} for group in groups]
        answer = await ask(doors, "mirror_group_offsets", 0, link="l", link_epoch=link_epoch, groups=values)
        assert all(outcome.refused == () for outcome in answer.outcomes)
        return [outcome.error_code for outcome in answer.outcomes]

    assert await mirrored("linked", "g") == [ErrorCode.none, ErrorCode.not_coordinator]
    assert await mirrored("linked", link_epoch=3) == [ErrorCode.fenced_leader_epoch]
    kept = doors.groups.offsets_of("linked", is_own_tool=True)
    assert [(one.offset, one.leader_epoch, one.metadata) for one in kept.values()] == [(7, 2, "m")]


async def test_a_mirror_learns_and_removes_only_what_mirrors_have_written_at_its_epoch(doors: Doors) -> None:
    async def mirrored(partition: int, offset: int, *, known: str = "") -> None:
        values = {
            "kinds": ["MirroredOffset"],
            "topic": "t",
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": known,
        }
        groups = [{"kinds": ["MirroredGroup"], "group_id": "linked", "offsets": [values]}]
        answer = await ask(doors, "mirror_group_offsets", 0, link="l", link_epoch=4, groups=groups)
        assert [outcome.error_code for outcome in answer.outcomes] == [ErrorCode.none]

    async def carried(link_epoch: int = 4) -> list[dict[int, int]]:
        asked = {"link": "l", "link_epoch": link_epoch, "group_ids": ("linked", "g")}
        answer = await ask(doors, "carried_offsets", 0, **asked)
        return [{one.partition_index: one.committed_offset for one in group.offsets} for group in answer.groups]

    await mirrored(0, 7)
    await mirrored(1, 8)
    assert await carried() == [{0: 7, 1: 8}, {}]
    assert await carried(link_epoch=5) == [{}, {}]
    await mirrored(0, -1, known="6")
    await mirrored(1, -1, known="8")
    assert await carried() == [{0: 7}, {}]
    await mirrored(0, -1, known="7")
    assert await carried() == [{}, {}]


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
    """Otherwise a mirror that has ended would seem to run until the clock reaches its old time
    again.
    """
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
