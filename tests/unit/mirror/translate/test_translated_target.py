"""Topics and groups at the target of a translate link: created in one request, each with its own
outcome; reported in the source's offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.link.core.committed_offsets import REMOVED, GroupOffset, LastInSync
from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.core.topic_plan import Action, CreateTopic, GrowTopic
from mirror.link.group_ports import GroupReading, GroupStates
from mirror.link.ports import Unreachable
from mirror.translate.core.translation import Translation
from mirror.translate.notes.core.stored_map import Binding
from mirror.translate.notes.group_notes import GroupNotes
from mirror.translate.translated_target import TranslatedTarget
from mirror.translate.translations import Translations
from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker
from tests.support.clock import ManualClock
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import TopicPartition

NOT_ASKED: Any = None
NAMING = Naming(policy=NamingPolicy.PREFIX, source_alias="a", target_alias="b")
CREATIONS: list[Action] = [
    CreateTopic(name=name, topic_id=UUID(int=1), partition_count=1, configs={}) for name in ("new", "there", "bad")
]


def target(
    client: Any,
    naming: Naming = NAMING,
    bindings: Sequence[Binding] = (),
    *,
    site: Any = NOT_ASKED,
    translations: Any = None,
    group_notes: Any = NOT_ASKED,
    opposite: Any = NOT_ASKED,
) -> TranslatedTarget:
    return TranslatedTarget(
        source=NOT_ASKED,
        target=site,
        client=client,
        naming=naming,
        translations=translations or SimpleNamespace(bindings=bindings),
        tails=NOT_ASKED,
        opposite=opposite,
        group_notes=group_notes,
        carries=lambda _: True,
        replication_factor=1,
        is_syncing_configs=True,
    )


def created(request: Any, header: Any) -> dict[str, Any]:
    codes = {
        "a.new": ErrorCode.none,
        "a.there": ErrorCode.topic_already_exists,
        "a.bad": ErrorCode.invalid_topic_exception,
    }
    topics = [
        {"name": topic.name, "topic_id": UUID(int=9), "error_code": codes[topic.name], "error_message": "because"}
        for topic in reversed(request.topics)
    ]
    return {"throttle_time": NO_TIME, "topics": topics}


def metadata(broker: ScriptedBroker) -> dict[str, Any]:
    node = {"node_id": 1, "host": broker.address.host, "port": broker.address.port, "rack": None}
    return {"throttle_time": NO_TIME, "brokers": [node], "cluster_id": "c", "controller_id": 1, "topics": []}


async def test_topics_are_made_at_once_and_each_has_its_own_outcome() -> None:
    async with ScriptedBroker() as broker:
        broker.on(3, lambda request, header: metadata(broker))
        broker.on(19, created)
        async with KafkaClient((broker.address,)) as client:
            problems = await target(client).act(CREATIONS, link="a-b", link_epoch=1)
        assert list(problems) == ["", "", "invalid_topic_exception because"]
        assert len(broker.requests(19)) == 1


async def test_of_two_topics_that_would_have_one_copy_one_is_refused() -> None:
    naming = Naming(policy=NamingPolicy.TABLE, source_alias="a", target_alias="b", table={"old": "a.new"})
    creations = [
        CreateTopic(name=name, topic_id=UUID(int=1), partition_count=1, configs={}) for name in ("old", "a.new")
    ]
    async with ScriptedBroker() as broker:
        broker.on(3, lambda request, header: metadata(broker))
        broker.on(19, created)
        async with KafkaClient((broker.address,)) as client:
            problems = await target(client, naming).act(creations, link="a-b", link_epoch=1)
    assert list(problems) == ["", "topic a.new of the target is the copy of old; two topics cannot have one copy"]


@pytest.mark.parametrize("actions", [CREATIONS, [GrowTopic(name="new", partition_count=2)]], ids=["create", "grow"])
async def test_a_target_that_cannot_be_reached_refuses_nothing(actions: list[Action], unused_tcp_port: int) -> None:
    async with KafkaClient(f"127.0.0.1:{unused_tcp_port}", retry_budget_ms=1) as client:
        with pytest.raises(Unreachable):
            await target(client).act(actions, link="a-b", link_epoch=1)


KEY, COPY = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


class Groups:
    """The groups of the target's coordinators, as a client and as a site see them."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, GroupOffset]] = {}
        self.problems: dict[str, str] = {}

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, ErrorCode]:
        kept = self.committed.setdefault(group, {})
        kept |= {key: GroupOffset(at.offset, -1, at.metadata) for key, at in offsets.items()}
        return dict.fromkeys(offsets, ErrorCode.none)

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        return GroupReading({group: dict(self.committed.get(group, {})) for group in groups})

    async def groups(self) -> GroupStates:
        return GroupStates(dict.fromkeys(self.committed, "Empty"), self.problems)


async def test_offsets_of_groups_that_are_gone_are_not_kept() -> None:
    groups = Groups()
    copies = target(groups, site=groups, translations=SimpleNamespace(known=list))
    for number in range(10):
        groups.committed = {f"app-{number}": {}}
        await copies.offsets_of(list(groups.committed))
        await copies.groups()
    assert list(copies._read) == ["app-9"]
    groups.committed, groups.problems = {}, {"broker 1": "it does not answer"}
    await copies.groups()
    assert list(copies._read) == ["app-9"], "the group may be at the broker that does not answer"


async def test_a_groups_offset_reads_as_it_was_written_until_it_is_moved() -> None:
    """Between two records, a marker for instance, there are several offsets of the source for one
    of the target.
    """
    translation = Translation()
    translation.map.append(0, 0, 5)
    translation.map.append(8, 5, 5)
    groups, notes = Groups(), GroupNotes(NOT_ASKED, "a-b", source_alias="a", replication_factor=1, clock=ManualClock())
    known = SimpleNamespace(known=lambda: [(KEY, translation)], of=lambda _: translation, binding=lambda _: None)
    copies = target(groups, site=groups, translations=known, group_notes=notes)
    assert await copies.commit("billing", {KEY: GroupOffset(6)}, link="a-b", link_epoch=0) == {KEY: ErrorCode.none}
    assert groups.committed["billing"] == {COPY: GroupOffset(5)}
    read = await copies.offsets_of(["billing"])
    assert (read.by_group["billing"], read.last_in_sync["billing"]) == (
        {KEY: GroupOffset(6)},
        {KEY: LastInSync(6, True)},
    )
    groups.committed["billing"][COPY] = GroupOffset(7)
    read = await copies.offsets_of(["billing"])
    assert (read.by_group["billing"], read.last_in_sync["billing"]) == (
        {KEY: GroupOffset(10)},
        {KEY: LastInSync(6, False)},
    )
    copies.note_in_sync("billing", {KEY: GroupOffset(9)})
    assert (await copies.offsets_of(["billing"])).last_in_sync["billing"] == {KEY: LastInSync(6, False)}, (
        "not the same place"
    )
    copies.note_in_sync("billing", {KEY: GroupOffset(10)})
    assert (await copies.offsets_of(["billing"])).last_in_sync["billing"] == {KEY: LastInSync(10, True)}
    await copies.commit("billing", {KEY: REMOVED}, link="a-b", link_epoch=0)
    assert (await copies.offsets_of(["billing"])).last_in_sync["billing"] == {}


class Opposite:
    """The opposite link as far as its notes have been read."""

    def __init__(self) -> None:
        self.noted = Translation()

    async def refresh(self, _topics: Mapping[str, UUID]) -> None:
        return

    def of(self, _key: TopicPartition, _binding: Binding) -> Translation:
        return self.noted


def both_ways() -> tuple[TranslatedTarget, Groups, Opposite]:
    """Ten records of each site under one name; the opposite link has noted nothing of those that it
    brought to the source.
    """
    link, opposite = Translation(), Opposite()
    link.map.append(0, 0, 10)
    link.position.source_next, link.position.target_next = 20, 10
    opposite.noted.position.source_next = 10
    groups, notes = Groups(), GroupNotes(NOT_ASKED, "a-b", source_alias="a", replication_factor=1, clock=ManualClock())
    known = SimpleNamespace(known=lambda: [(KEY, link)], of=lambda _: link, binding=lambda _: "both")
    identity = Naming(policy=NamingPolicy.IDENTITY, source_alias="a", target_alias="b")
    copies = target(groups, identity, site=groups, translations=known, group_notes=notes, opposite=opposite)
    return copies, groups, opposite


async def test_an_offset_that_an_old_map_made_too_small_is_reported_with_a_newer_map() -> None:
    """Ten records of each site; the group read those of the target at the source before the
    opposite link had noted them.
    """
    copies, groups, opposite = both_ways()
    carried = {"billing": {KEY: GroupOffset(20)}}
    await copies.commit("billing", carried["billing"], link="a-b", link_epoch=0)
    assert groups.committed["billing"] == {KEY: GroupOffset(10)}
    assert await copies.outgrown(carried) == []
    assert (await copies.offsets_of(["billing"])).by_group["billing"] == {KEY: GroupOffset(20)}
    opposite.noted.map.append(10, 10, 10)
    opposite.noted.position.source_next = 20
    assert await copies.outgrown(carried) == ["billing"]
    read = await copies.offsets_of(["billing"])
    assert (read.by_group["billing"], read.last_in_sync["billing"]) == (
        {KEY: GroupOffset(10)},
        {KEY: LastInSync(20, True)},
    )
    await copies.commit("billing", carried["billing"], link="a-b", link_epoch=0)
    assert groups.committed["billing"] == {KEY: GroupOffset(20)}
    assert await copies.outgrown(carried) == []


async def test_a_group_that_has_moved_at_the_target_is_not_reported_for_an_old_map() -> None:
    copies, groups, opposite = both_ways()
    await copies.commit("billing", {KEY: GroupOffset(20)}, link="a-b", link_epoch=0)
    groups.committed["billing"][KEY] = GroupOffset(15)
    await copies.offsets_of(["billing"])
    opposite.noted.map.append(10, 10, 10)
    opposite.noted.position.source_next = 20
    assert await copies.outgrown({"billing": {KEY: GroupOffset(20)}}) == []


async def test_an_offset_below_the_targets_log_start_is_raised_to_it() -> None:
    """The target has removed records since the flow began: a consumer would be out of range."""
    translations = Translations(NOT_ASKED, NOT_ASKED, clock=ManualClock())
    translation = Translation()
    translation.map.append(10, 0, 20)
    translations.put(KEY, translation)
    groups, notes = Groups(), GroupNotes(NOT_ASKED, "a-b", source_alias="a", replication_factor=1, clock=ManualClock())
    copies = target(groups, site=groups, translations=translations, group_notes=notes)
    translations.note_target_start(KEY, 8)
    await copies.commit("billing", {KEY: GroupOffset(13)}, link="a-b", link_epoch=0)
    assert groups.committed["billing"] == {COPY: GroupOffset(8)}
    read = await copies.offsets_of(["billing"])
    assert read.by_group["billing"] == {KEY: GroupOffset(13)}, "the group has not moved"
    translations.note_target_start(KEY, 9)
    await copies.commit("billing", {KEY: GroupOffset(25)}, link="a-b", link_epoch=0)
    assert groups.committed["billing"] == {COPY: GroupOffset(15)}
