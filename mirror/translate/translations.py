"""The state of one translate link, in memory and in its topic: producers, topics, a translation for
each partition.

Call `load` once, then `save` at intervals (`keep_saved`). A crash loses no unsaved change, because
the target's log itself shows the mirrored position (`core/resume.py`). The topic shortens that
search, and keeps the offset map.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from uuid import UUID

from mirror.link.ports import Unreachable
from mirror.sites.kafka_site import reached
from mirror.translate.core.translation import Position, Surplus, Translation
from mirror.translate.notes.core.stored_map import (
    Binding,
    StoredLink,
    StoredRecord,
    partition_records,
    producer_record,
    tombstones,
    topic_record,
)
from mirror.translate.notes.offset_store import OffsetStore, keep_saved
from mirror.translate.transactions import Transactions
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition

SAVE_INTERVAL_S = 0.5

_log = get_logger("mirror.translate")


class Translations:
    """The translations of one link; one event loop only."""

    def __init__(
        self, client: KafkaClient, store: OffsetStore, *, clock: Clock, transactions: Transactions | None = None
    ) -> None:
        # With transactions everything is noted in one of them, and nothing under a producer id that
        # another mirror could have.
        self._transactions = transactions
        # The last chunk of each partition in the notes of the transaction under way.
        self._noting: dict[TopicPartition, int] = {}
        self._client = client
        self._store = store
        self._clock = clock
        self._stored = StoredLink()
        self._by_key: dict[TopicPartition, Translation] = {}
        self._saved_chunk: dict[TopicPartition, int] = {}
        self._source_starts: dict[TopicPartition, int] = {}
        self._target_starts: dict[TopicPartition, int] = {}
        # Partitions whose copy was replaced by another topic, with the sequences that continue
        # there: batches that reached the new topic before the mirror noticed have earlier
        # sequences.
        self._rebound: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        # Counted for each partition, across its translations.
        self._surplus: defaultdict[TopicPartition, Surplus] = defaultdict(Surplus)
        self._allocating = asyncio.Lock()
        # If several daemons share the link, each writes only about its own partitions.
        self.owns: Callable[[TopicPartition], bool] = lambda _: True
        # Where no transactions keep others out, a daemon writes while its lease of the link, or its
        # share, is confirmed by its own clock.
        self.may_write: Callable[[TopicPartition], bool] = lambda _: True

    async def load(self) -> None:
        """Read the link's topic. Unreachable; OperationalFailure when the target refuses the
        topic.
        """
        self._stored = await self._store.load()
        self._give_up_rebound()
        self._by_key.clear()
        self._saved_chunk.clear()

    async def reload(self) -> None:
        """Read again the notes that other daemons of the link have written; this daemon's own slots
        stay as they are in memory.
        """
        stored = await self._store.load()
        kept = {key: translation for key, translation in self._by_key.items() if self.owns(key)}
        stored.producers.update(self._stored.producers)
        self._stored, self._by_key = stored, kept
        self._give_up_rebound()

    def _give_up_rebound(self) -> None:
        """Another daemon has begun these partitions anew, and has noted it before its first write:
        its batches in them are not those of a former topic.
        """
        begun = [key for key in self._rebound if not self.owns(key) and key in self._stored.positions]
        for key in begun:
            del self._rebound[key]

    @property
    def producers(self) -> Mapping[str, int]:
        """Our producer id for each site at which records were first written."""
        return self._stored.producers

    @property
    def is_transactional(self) -> bool:
        """True if positions are written in the transactions that make them valid."""
        return self._transactions is not None

    async def be_ready(self) -> int:
        """With transactions, make sure of a producer and of the target's notes. TakenOver,
        Unreachable.

        Returns the era, for `demand`.
        """
        if self._transactions is None:
            return 0
        await self._transactions.ready()
        return self._transactions.era

    def demand(self, key: TopicPartition, era: int) -> None:
        """Raises Unreachable when what was read of a partition in that era may be outdated: another
        daemon may have written it since.
        """
        if self._transactions is None:
            return
        if self._transactions.era != era or not self._transactions.holds(key):
            raise Unreachable(f"{key} is checked again: the mirror's transactions were restarted")

    @property
    def writers(self) -> AbstractSet[int]:
        """The producer ids of all transactional producers that the link ever had."""
        return self._stored.writers

    async def have_producer(self, origin: str) -> None:
        """Make sure that there is a producer id for records of that site, noted before anything is
        written under it.
        """
        if self._transactions is not None:
            return
        async with self._allocating:
            if origin in self.producers and origin not in self._stored.unsettled:
                return
            found = self.producers.get(origin)
            if found is None:
                producer_id = await reached(self._client.new_producer_id())
                await self._store.save([[producer_record(origin, producer_id)]], now_ms=self._clock.now_ms())
                stored = await self._store.load()
                found, is_settled = stored.producers[origin], origin not in stored.unsettled
            else:
                is_settled = False
            # Another mirror of the link may have been first: then its id is used, and written again
            # as the last record. A mirror that was killed before that has left it to the next one.
            if not is_settled:
                await self._store.save([[producer_record(origin, found)]], now_ms=self._clock.now_ms())
            self._stored.unsettled.discard(origin)
            self._stored.producers[origin] = found
            _log.info("writing under a producer id of our own", origin=origin, producer_id=found)

    def binding(self, topic: str) -> Binding | None:
        """Return the target topic that carries a source topic, if known."""
        return self._stored.bindings.get(topic)

    @property
    def bindings(self) -> Iterable[Binding]:
        """Return all known bindings, also those of topics that the source has lost."""
        return tuple(self._stored.bindings.values())

    async def bind(self, topic: str, source_id: UUID, target: str, target_id: UUID) -> None:
        """Bind this topic to that one; the state of an earlier binding of the name is dropped."""
        before = self.binding(topic)
        binding = Binding(topic=topic, source_id=source_id, target=target, target_id=target_id)
        records = [[topic_record(binding)]]
        places = {
            key
            for key in (*self._by_key, *self._stored.positions, *self._stored.chunks)
            if key.topic == topic and self.owns(key)
        }
        if before is not None:
            records += [tombstones(key, self._chunks_written(key), with_position=True) for key in places]
            for key in places:
                known = self.of(key)
                known.renew_epochs()
                self._rebound[key] = known.position.sequences
                # Later changes of it must not be written after the tombstones.
                self._by_key.pop(key)
        if self._transactions is None:
            await self._store.save(records, now_ms=self._clock.now_ms())
        else:
            await self._transactions.write(records)
        self._stored.bindings[topic] = binding
        if before is not None:
            for key in places:
                self._stored.positions.pop(key, None)
                self._stored.chunks.pop(key, None)
                if key in self._rebound:  # Otherwise the partition has begun anew meanwhile.
                    self._by_key.pop(key, None)
                    self._saved_chunk.pop(key, None)
                self._target_starts.pop(key, None)

    def _chunks_written(self, key: TopicPartition) -> list[int]:
        saved = range(self._saved_chunk[key] + 1) if key in self._saved_chunk else ()
        return sorted({*self._stored.chunks.get(key, ()), *saved})

    def of(self, key: TopicPartition) -> Translation:
        """The partition's translation."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._stored.translation(key)
            found.surplus = self._surplus[key]
            self._saved_chunk[key] = max(0, found.map.last_chunk)
        return found

    def put(self, key: TopicPartition, translation: Translation) -> None:
        """Start with this translation; the next save stores it."""
        translation.is_dirty = True
        self._surplus[key].between += translation.surplus.between
        translation.surplus = self._surplus[key]
        self._by_key[key] = translation
        self._saved_chunk[key] = 0
        self._rebound.pop(key, None)

    def is_new(self, key: TopicPartition) -> bool:
        """Return True if nothing is known of the partition."""
        return key in self._rebound or (key not in self._by_key and key not in self._stored.positions)

    def begun(self, key: TopicPartition) -> Translation:
        """Return a translation for an unknown partition, under sequences that its copy does not
        know either.
        """
        return Translation(Position(sequences=dict(self._rebound.get(key, {}))))

    def is_rebound(self, key: TopicPartition) -> bool:
        """True if its copy is another topic than before: batches of ours that are already in it
        were meant for the former topic.
        """
        return key in self._rebound

    def note_source_start(self, key: TopicPartition, log_start_offset: int) -> None:
        """Note the source's log start: earlier offsets need no translation once the target has
        deleted their records too.
        """
        self._source_starts[key] = max(log_start_offset, self._source_starts.get(key, 0))

    def note_target_start(self, key: TopicPartition, log_start_offset: int) -> None:
        """Note the target's log start."""
        start = self._target_starts[key] = max(log_start_offset, self._target_starts.get(key, 0))
        if key in self._by_key:
            self._by_key[key].target_start = start

    async def save(self) -> None:
        """Write the changes. Unreachable: they will be written with the next save."""
        changed = self._changed()
        if not changed:
            return
        if self._transactions is not None:
            await self._transactions.write()
            return
        groups, chunks_saved = self._groups({key: self._by_key[key] for key in changed})
        try:
            await self._store.save(groups, now_ms=self._clock.now_ms())
        except BaseException:
            for key in changed:
                self.of(key).is_dirty = True
            raise
        self._saved_chunk.update(chunks_saved)

    def _changed(self) -> list[TopicPartition]:
        return [key for key, translation in self._by_key.items() if translation.is_dirty and self.owns(key)]

    def _groups(
        self, noted: Mapping[TopicPartition, Translation]
    ) -> tuple[list[list[StoredRecord]], dict[TopicPartition, int]]:
        """The records of these partitions in their present state, and the last chunk of each; they
        count as saved from now on.
        """
        groups: list[list[StoredRecord]] = []
        chunks_saved: dict[TopicPartition, int] = {}
        for key, as_noted in noted.items():
            translation = self._by_key[key]
            translation.is_dirty = False
            gone = translation.map.trim(
                source_start=self._source_starts.get(key, 0), target_start=self._target_starts.get(key, 0)
            )
            last = as_noted.map.last_chunk
            # A map that was truncated has fewer chunks than were saved; the chunks after its end
            # are removed.
            beyond = range(last + 1, self._saved_chunk.get(key, 0) + 1)
            chunks = range(min(self._saved_chunk.get(key, 0), max(last, 0)), last + 1)
            records = partition_records(key, as_noted, chunks=chunks)
            groups.append([*records, *tombstones(key, gone), *tombstones(key, beyond)])
            chunks_saved[key] = max(0, last)
        return groups, chunks_saved

    # Notes of a transaction (`transactions.Book`).

    def notes(self, keys: Iterable[TopicPartition]) -> Sequence[Sequence[StoredRecord]]:
        """The notes for the state after all planned batches of these partitions, with other
        changes.
        """
        noted = {key: self._by_key[key] for key in self._changed()}
        for key in keys:
            noted[key] = self.of(key).ahead(first_chunk=self._saved_chunk.get(key, 0))
        groups, self._noting = self._groups(noted)
        return groups

    def settle(self, keys: Iterable[TopicPartition]) -> None:
        """Confirm the last notes, and everything planned of these partitions."""
        for key in keys:
            translation = self.of(key)
            translation.confirm()
            translation.is_dirty = False
        self._saved_chunk.update(self._noting)
        self._noting = {}

    def give_up(self, keys: Iterable[TopicPartition]) -> None:
        """Discard the last notes, and everything planned of these partitions."""
        for key in keys:
            self.of(key).give_up()
        for key in self._noting:
            self.of(key).is_dirty = True
        self._noting = {}

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        """Surplus records at the target, beyond one copy of each record, by partition; with
        transactions, only records that read-committed readers do not see.
        """
        return {
            key: found.broken_off if self.is_transactional else found.between
            for key, found in self._surplus.copy().items()
        }

    async def keep_saved(self) -> None:
        """Save each interval until cancelled."""
        await keep_saved(
            self.save,
            interval_s=SAVE_INTERVAL_S,
            event="cannot save the offset map; it can be restored from the target's log",
        )

    def known(self) -> Iterable[tuple[TopicPartition, Translation]]:
        """Return the translations of this daemon's partitions that have been read so far."""
        return [(key, translation) for key, translation in self._by_key.items() if self.owns(key)]
