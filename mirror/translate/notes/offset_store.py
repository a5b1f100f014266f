"""The compacted topic at the target in which a translate link keeps its state (layout:
`core/stored_map.py`).

A reader that starts at the beginning of the topic gets the whole state. Each write is one batch
that all replicas acknowledge. Reverse links also read the producer ids in it (`provenance.py`): by
these a mirror recognises records that another mirror has copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from kio.schema.errors import ErrorCode
from msgspec import Struct

from clients.reader.core.committed import skipped_batches
from clients.reader.single_fetches import fetch_at_leader, records_of
from mirror.link.ports import Unreachable
from mirror.sites.kafka_site import reached
from mirror.translate.core.renumbering import Stamp
from mirror.translate.notes.core.claims import Claim, ClaimName
from mirror.translate.notes.core.stored_map import NO_NOTE, StoredLink, StoredRecord, is_claim
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from wire.batches.record_batch import TRANSACTIONAL_BIT, Buffer, Compression, iterate_headers
from wire.batches.records import Record, decode_batch, encode_batch
from wire.client.raw_client import KafkaClient, NewTopic
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED

TOPIC_PREFIX = "antipode-offset-map."
BATCH_BYTES = 256 * 1024
"""Records are written in batches of about this size; all records of one partition go into one
batch.
"""

SETTLING_MS_MAX = 5_000
"""Time (ms) that a read waits for other producers' transactions before it fails and is repeated."""

_READ_BYTES = 4 * 1024 * 1024
# Compacted early and in small segments, because every daemon reads the whole topic at its start.
_CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.bytes": str(16 * 1024 * 1024)}

_log = get_logger("mirror.translate")


async def keep_saved(save: Callable[[], Awaitable[None]], *, interval_s: float, event: str) -> None:
    """Save each interval until cancelled; `event` is logged when saving begins to fail."""
    is_failing = False
    while True:
        await asyncio.sleep(interval_s)
        try:
            await save()
            is_failing = False
        except Unreachable as error:
            if not is_failing:
                _log.warning(event, reason=str(error))
            is_failing = True


class LinkTopic:
    """A compacted topic of a link at its target, with one partition."""

    def __init__(self, client: KafkaClient, topic: str, *, replication_factor: int) -> None:
        self._client = client
        self._replication_factor = replication_factor
        self.topic = topic

    async def create(self) -> None:
        """Create the topic if need be. Unreachable; OperationalFailure when the target refuses
        it.
        """
        # One partition, because the order of claims decides which mirror fences which.
        new = NewTopic(
            name=self.topic, partition_count=1, replication_factor=self._replication_factor, configs=_CONFIGS
        )
        (outcome,) = await reached(self._client.create_topics([new]))
        # Daemons of a shared link start together: another one may have created it.
        if outcome.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise OperationalFailure(
                f"the target refuses the topic {self.topic}: {outcome.error_code.name} {outcome.error_message or ''}"
            )

    async def save(self, groups: Iterable[Sequence[StoredRecord]], *, now_ms: int) -> None:
        """Write records, each group of them within one batch. Raises Unreachable when it is not
        certain that all are written.
        """
        for notes in encoded(groups, now_ms=now_ms):
            await reached(self._client.produce(self.topic, 0, notes.sealed()))


class OffsetStore(LinkTopic):
    """The topic of the link's state."""

    def __init__(self, client: KafkaClient, link: str, *, replication_factor: int) -> None:
        super().__init__(client, TOPIC_PREFIX + link, replication_factor=replication_factor)

    async def load(self) -> StoredLink:
        """Create the topic if need be, and read it all. As `create`."""
        await self.create()
        stored = StoredLink()
        await read_topic(self._client, self.topic, stored.apply)
        return stored

    async def claims(
        self, *, first_offset: int = 0, isolation_level: int = READ_UNCOMMITTED
    ) -> Mapping[ClaimName, Claim]:
        """Claims of the link's transactional mirrors in the order of the topic, from an offset on.
        Unreachable.

        By default this includes the records of open and aborted transactions.
        """
        stored = StoredLink()

        def take(key: bytes | None, value: bytes | None) -> None:
            if is_claim(key):
                stored.apply(key, value)

        await read_topic(self._client, self.topic, take, first_offset=first_offset, isolation_level=isolation_level)
        return stored.claims

    async def values_of(self, key: bytes, *, first_offset: int) -> tuple[list[bytes | None], int]:
        """The values of one key in the order of the topic, from an offset on, and the offset at
        which the topic ends. Unreachable.
        """
        values: list[bytes | None] = []

        def take(found: bytes | None, value: bytes | None) -> None:
            if found == key:
                values.append(value)

        # Committed reads end below an open transaction of another mirror, and newer values lie
        # behind it.
        end = await read_topic(
            self._client, self.topic, take, first_offset=first_offset, isolation_level=READ_UNCOMMITTED
        )
        return values, end

    async def settled(self) -> None:
        """Wait until all that is in the topic now is committed or aborted. Unreachable while some
        transaction of another mirror is open.
        """
        noted_key = (self.topic, 0)
        end = (await reached(self._client.offsets_at([noted_key], LATEST_TIMESTAMP)))[noted_key]

        async def is_stable() -> None:
            found = await reached(
                self._client.offsets_at([noted_key], LATEST_TIMESTAMP, isolation_level=READ_COMMITTED)
            )
            # for READ_COMMITTED the end is the last stable offset: it stays below an open
            # transaction
            if found[noted_key] < end:
                raise Unreachable(
                    f"a transaction of another mirror is open in {self.topic} at offset {found[noted_key]}"
                )

        await jittered_backoff(retry_on=Unreachable, initial_ms=5, max_ms=100, budget_ms=SETTLING_MS_MAX)(is_stable)


class NoteBatch(Struct, frozen=True):
    """Records of the link's topic that are written as one batch."""

    records: Sequence[Record]

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records)

    def sealed(self, stamp: Stamp | None = None) -> bytes:
        """The batch; with a stamp as a part of that producer's transaction."""
        if stamp is None:
            return encode_batch(self.records, compression=Compression.LZ4)
        return encode_batch(
            self.records,
            compression=Compression.LZ4,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            base_sequence=stamp.sequence,
            attributes=TRANSACTIONAL_BIT,
        )


def encoded(groups: Iterable[Sequence[StoredRecord]], *, now_ms: int) -> Iterator[NoteBatch]:
    """The records in batches of about `BATCH_BYTES`, each group of them within one."""
    batch: list[Record] = []
    size = 0
    # A group is never divided: a batch is written whole or not at all, so that no position is
    # stored without its part of the map.
    for group in groups:
        batch += [Record(key, value, now_ms) for key, value in group]
        size += sum(len(key) + len(value or b"") for key, value in group)
        if size >= BATCH_BYTES:
            yield NoteBatch(batch)
            batch, size = [], 0
    if batch:
        yield NoteBatch(batch)


async def read_link(client: KafkaClient, link: str) -> tuple[StoredLink, int]:
    """The state of a translate link from its topic at the target, and the offset at which that
    topic ends. Raises OperationalFailure when these brokers have no such topic, Unreachable.
    """
    topic = TOPIC_PREFIX + link
    found = (await reached(client.metadata([topic]))).topics.get(topic)
    if found is None or found.error_code:
        raise OperationalFailure(f"these brokers have no offset map of link {link!r}: give brokers of its target site")
    stored = StoredLink()
    return stored, await read_topic(client, topic, stored.apply)


async def read_topic(
    client: KafkaClient,
    topic: str,
    take: Callable[[bytes | None, bytes | None], None],
    *,
    first_offset: int = 0,
    isolation_level: int = READ_COMMITTED,
) -> int:
    """Pass all records of partition 0 from `first_offset` to its end to `take`; returns the end.
    Records that `take` refuses (NO_NOTE) are left out: other clients may have written them.
    Unreachable.
    """
    noted_key = (topic, 0)
    start = (await reached(client.offsets_at([noted_key], EARLIEST_TIMESTAMP)))[noted_key]
    end = (await reached(client.offsets_at([noted_key], LATEST_TIMESTAMP, isolation_level=isolation_level)))[noted_key]
    # the end is that of this moment: records that arrive during the read are not awaited
    offset = max(first_offset, start)
    foreign: list[tuple[int, str]] = []
    while offset < end:
        records, skipped = await fetch_with_skipped(
            client, topic, 0, offset, max_bytes=_READ_BYTES, isolation_level=isolation_level
        )
        before = offset
        for position, header in iterate_headers(records, may_end_in_partial=True):
            if header.base_offset not in skipped:
                for record in decode_batch(records, position, header):
                    # the first batch may begin below the requested offset
                    if record.offset >= offset:
                        try:
                            take(record.key, record.value)
                        except NO_NOTE as error:
                            foreign.append((record.offset, str(error)))
            # from the header, because compaction may have removed the batch's last records
            offset = max(offset, header.next_offset)
        # no whole batch came, so another fetch would bring the same; the caller repeats with a
        # pause
        if offset == before:
            raise Unreachable(f"{topic} could not be read at offset {offset}")
    if foreign:
        first, reason = foreign[0]
        _log.warning(
            "records that are not notes of a mirror are ignored",
            topic=topic,
            records=len(foreign),
            first_offset=first,
            reason=reason,
        )
    return end


async def fetch_with_skipped(
    client: KafkaClient, topic: str, partition: int, offset: int, *, max_bytes: int, isolation_level: int
) -> tuple[Buffer, frozenset[int]]:
    """Fetch records like `fetch_records`, up to the last stable offset if only committed records
    count; also return the base offsets of skipped batches.
    """
    fetched = await reached(
        fetch_at_leader(
            client,
            (topic, partition),
            offset,
            max_bytes=max_bytes,
            max_wait_ms=100,
            isolation_level=isolation_level,
        )
    )
    records = records_of(fetched)
    return records, skipped_batches(records, aborted=fetched.aborted_transactions or ())


async def fetch_records(client: KafkaClient, topic: str, partition: int, offset: int, *, max_bytes: int) -> Buffer:
    """The batches of a plain fetch at the leader, at most `max_bytes` and one batch. Raises
    Unreachable, also for errors of the broker.
    """
    noted_key = (topic, partition)
    return records_of(await reached(fetch_at_leader(client, noted_key, offset, max_bytes=max_bytes, max_wait_ms=100)))
