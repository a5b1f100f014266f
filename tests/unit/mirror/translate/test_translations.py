"""A translate link's report of the surplus records at its target, and its producer ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import UUID

import pytest

from mirror.translate.core.translation import Position, Translation
from mirror.translate.notes.core.stored_map import StoredLink, StoredRecord, producer_record
from mirror.translate.translations import Translations
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("t", 0)


@pytest.mark.parametrize(("transactions", "counted"), [(None, 5), (MagicMock(), 9)])
def test_the_count_goes_on_when_a_partition_is_begun_anew(transactions: Any, counted: int) -> None:
    """Between the batches of a link that writes in transactions there are markers: only aborted
    records count there.
    """
    translations = Translations(MagicMock(), MagicMock(), clock=ManualClock(), transactions=transactions)
    before = translations.of(KEY).surplus
    before.between, before.broken_off = 3, 9
    translations.put(KEY, Translation())
    translations.of(KEY).surplus.between += 2
    assert translations.surplus_records() == {KEY: counted}


class Notes:
    """The link's topic, and a killed daemon's record in it that was not followed by another."""

    def __init__(self, *records: StoredRecord) -> None:
        self.records = list(records)

    async def load(self) -> StoredLink:
        stored = StoredLink()
        for key, value in self.records:
            stored.apply(key, value)
        return stored

    async def save(self, groups: Iterable[Sequence[StoredRecord]], *, now_ms: int) -> None:
        self.records += [record for group in groups for record in group]

    def compact(self) -> None:
        self.records = list(dict(self.records).items())


async def test_the_producer_in_use_stays_the_last_note_although_a_daemon_was_killed() -> None:
    """The daemon had noted its own id after the first one, and not yet the first one again: after
    compaction no daemon would recognise the tails at the target.
    """
    notes: Any = Notes(producer_record("a", 7), producer_record("a", 8))
    translations = Translations(MagicMock(), notes, clock=ManualClock())
    await translations.load()
    await translations.have_producer("a")
    await translations.have_producer("a")
    assert len(notes.records) == 3
    notes.compact()
    await translations.load()
    assert translations.producers == {"a": 7}


async def test_a_daemon_that_is_first_notes_its_id_again_behind_a_later_one() -> None:
    notes: Any = Notes()
    client: Any = MagicMock(new_producer_id=AsyncMock(return_value=7))
    translations = Translations(client, notes, clock=ManualClock())
    save = notes.save

    async def followed(groups: Iterable[Sequence[StoredRecord]], *, now_ms: int) -> None:
        await save(groups, now_ms=now_ms)
        if len(notes.records) == 1:
            notes.records.append(producer_record("a", 8))

    notes.save = followed
    await translations.have_producer("a")
    notes.compact()
    assert (await notes.load()).producers == translations.producers == {"a": 7}


async def test_a_partition_that_another_daemon_has_begun_anew_goes_on_where_that_one_was() -> None:
    """This daemon noticed that the copy is another topic, and lost its slot before it began: what
    the other one wrote would be counted as surplus, and copied a second time.
    """
    notes: Any = Notes(producer_record("a", 7))
    ours, theirs = (Translations(MagicMock(), notes, clock=ManualClock()) for _ in range(2))
    await ours.load()
    await ours.bind(KEY.topic, UUID(int=1), "a.t", UUID(int=2))
    ours.put(KEY, Translation(Position(10, 0, 10, {7: (0, 10)})))
    await ours.save()
    await ours.bind(KEY.topic, UUID(int=1), "a.t", UUID(int=3))
    assert ours.is_rebound(KEY)
    await theirs.load()
    theirs.put(KEY, Translation(Position(30, 0, 30, {7: (1, 30)})))
    await theirs.save()
    ours.owns = lambda _: False
    await ours.reload()
    ours.owns = lambda _: True
    assert not ours.is_new(KEY)
    assert ours.of(KEY).position == Position(30, 0, 30, {7: (1, 30)})
