"""The target of a translate link as flows see it, over sites in memory."""

from __future__ import annotations

from uuid import UUID

import pytest

from mirror.link.core.topic_naming import Naming, NamingPolicy
from mirror.link.ports import Leader, Unreachable
from mirror.translate.notes.core.stored_map import Binding
from mirror.translate.translated_target import TranslatedTarget
from tests.support.memory.memory_sites import MemorySite


class Bindings:
    """The part of the link's notes that maps the topics to each other."""

    def __init__(self) -> None:
        self._found: dict[str, Binding] = {}

    def binding(self, topic: str) -> Binding | None:
        return self._found.get(topic)

    @property
    def bindings(self) -> list[Binding]:
        return list(self._found.values())

    async def bind(self, topic: str, source_id: UUID, target: str, target_id: UUID) -> None:
        self._found[topic] = Binding(topic=topic, source_id=source_id, target=target, target_id=target_id)


@pytest.fixture
def sites() -> tuple[MemorySite, MemorySite]:
    source, target = MemorySite("a", 1001), MemorySite("b", 2001)
    source.add("orders", 2, number=1)
    target.add("a.orders", 2, number=2)
    return source, target


@pytest.fixture
def translated(sites: tuple[MemorySite, MemorySite]) -> TranslatedTarget:
    return copies(*sites, Naming(policy=NamingPolicy.PREFIX, source_alias="a", target_alias="b"))


def copies(source: MemorySite, target: MemorySite, naming: Naming) -> TranslatedTarget:
    return TranslatedTarget(
        source=source,
        target=target,
        client=None,
        naming=naming,
        translations=Bindings(),
        tails=None,
        opposite=None,
        group_notes=None,
        carries=lambda topic: topic != "left-out",
        replication_factor=1,
        is_syncing_configs=False,
    )


async def test_leaders_of_copies_are_found_while_the_source_is_silent(
    sites: tuple[MemorySite, MemorySite], translated: TranslatedTarget
) -> None:
    """Batches that were fetched before the source was lost must arrive, at any leader of the
    target.
    """
    source, target = sites
    assert (await translated.topics())["orders"].leaders == {0: Leader(2001, 0), 1: Leader(2001, 0)}
    source.is_up = False
    target.leader = Leader(2002, 1)
    found = (await translated.topics())["orders"]
    assert found.topic_id == source.ids["orders"]
    assert found.leaders == {0: Leader(2002, 1), 1: Leader(2002, 1)}


async def test_the_copy_of_a_deleted_topic_is_reported_until_it_is_deleted_too(
    sites: tuple[MemorySite, MemorySite], translated: TranslatedTarget
) -> None:
    """M9."""
    source, target = sites
    before = await translated.topics()
    source.delete("orders")
    assert await translated.topics() == before
    target.delete("a.orders")
    assert await translated.topics() == {}


async def test_a_copy_is_of_one_topic_and_topics_that_are_not_carried_have_none(
    sites: tuple[MemorySite, MemorySite], translated: TranslatedTarget
) -> None:
    source, target = sites
    source.add("left-out", 1, number=3)
    target.add("a.left-out", 1, number=4)
    assert set(await translated.topics()) == {"orders"}
    naming = Naming(policy=NamingPolicy.TABLE, source_alias="a", target_alias="b", table={"payments": "orders"})
    target.add("orders", 2, number=5)
    source.add("payments", 2, number=6)
    by_table = copies(source, target, naming)
    first = set(await by_table.topics())
    assert len(first) == 1
    assert set(await by_table.topics()) == first


async def test_a_source_that_was_never_reached_has_no_copies(
    sites: tuple[MemorySite, MemorySite], translated: TranslatedTarget
) -> None:
    sites[0].is_up = False
    with pytest.raises(Unreachable, match="site a is down"):
        await translated.topics()
