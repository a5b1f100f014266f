"""The site at which a source's batch was first written: known by its producer id, without opening
it.

Every mirror writes under its own producer ids. Before it writes a record, it notes these ids, with
the site at which the records were first written, in its link's topic at the target cluster. So each
mirror that reads that cluster knows the origin of each batch: records never return to their own
site, for any names of topics and any number of sites in between (M5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from mirror.sites.kafka_site import reached
from mirror.translate.notes.offset_store import TOPIC_PREFIX, read_topic
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import NO_PRODUCER_ID, READ_UNCOMMITTED
from wire.protocol.json_documents import parse_json

KNOWN_PRODUCERS_MAX = 100_000
"""Maximum number of producer ids that are cached as ordinary ones; others are looked up again."""


class Provenance:
    """The contents of the link topics at the source's clusters."""

    def __init__(self, client: KafkaClient, *, source_alias: str, on_origin: Callable[[str], None]) -> None:
        """`on_origin` gets the alias of each site at which records were first written."""
        self._client = client
        self._source_alias = source_alias
        # The read position of each topic, with the topic's id: a topic that was created again is
        # read from its beginning.
        self._read_to: dict[str, tuple[UUID | None, int]] = {}
        self._ordinary: set[int] = {NO_PRODUCER_ID}
        self.origins: dict[int, str] = {}
        self._on_origin = on_origin

    def origin_of(self, producer_id: int) -> str:
        """The site at which the producer's records were first written."""
        return self.origins.get(producer_id, self._source_alias)

    async def learn(self, producer_ids: Iterable[int]) -> None:
        """Make sure that these producers are known. Raises Unreachable when the source does not
        answer.
        """
        unknown = set(producer_ids) - self._ordinary - self.origins.keys()
        if not unknown:
            return
        await self.refresh()
        if len(self._ordinary) > KNOWN_PRODUCERS_MAX:
            self._ordinary = {NO_PRODUCER_ID}
        self._ordinary |= unknown - self.origins.keys()

    async def refresh(self) -> None:
        """Read the notes that mirrors have written at the source since the last look."""
        metadata = await reached(self._client.metadata())
        for topic, described in sorted(metadata.topics.items()):
            if topic.startswith(TOPIC_PREFIX):
                read_id, read_to = self._read_to.get(topic, (described.topic_id, 0))
                first = read_to if read_id == described.topic_id else 0
                end = await self._read(topic, first)
                if end < first:  # The topic was created again at a cluster without topic ids.
                    end = await self._read(topic, 0)
                self._read_to[topic] = described.topic_id, end

    async def _read(self, topic: str, first_offset: int) -> int:
        """Counts before its mirror's transaction is committed: open transactions must not hide a
        producer's origin.
        """
        return await read_topic(
            self._client, topic, self._take, first_offset=first_offset, isolation_level=READ_UNCOMMITTED
        )

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        name = parse_json(key)
        if name["kind"] in ("producer", "writer"):
            producer_id = int(name["id"] if "id" in name else parse_json(value)["id"])
            origin = self.origins[producer_id] = str(name["origin"])
            self._on_origin(origin)
