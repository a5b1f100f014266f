"""Writes a translate link's notes inside of transactions, into the link's topic at the target."""

from __future__ import annotations

from collections.abc import Sequence

from mirror.sites.kafka_site import reached
from mirror.translate.core.renumbering import Stamp, next_sequence
from mirror.translate.notes.core.stored_map import StoredRecord
from mirror.translate.notes.offset_store import OffsetStore, encoded
from runtime.clock import Clock
from wire.client.client_errors import TRANSIENT, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import PartitionKey
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords


class NoteWriter:
    """One producer's notes, in the order of its sequences; one write at a time."""

    def __init__(
        self, client: KafkaClient, store: OffsetStore, clock: Clock, transactional_id: str, *, request_timeout_ms: int
    ) -> None:
        self._client = client
        self._topic = store.topic
        self._clock = clock
        self._transactional_id = transactional_id
        self._request_timeout_ms = request_timeout_ms
        self._sequence = 0

    @property
    def place(self) -> PartitionKey:
        """The partition of the notes."""
        return (self._topic, 0)

    def begin(self) -> None:
        """Begin at sequence 0: the producer has a new epoch."""
        self._sequence = 0

    async def write(self, stamp: ProducerIdentity, notes: Sequence[Sequence[StoredRecord]]) -> int:
        """Write these records in the open transaction of `stamp`; returns the offset of the first
        one. Raises Unreachable.
        """
        first = -1
        for records in encoded(notes, now_ms=self._clock.now_ms()):
            batch = records.sealed(Stamp(*stamp, self._sequence))
            topic = TopicRecords(self._topic, None, [PartitionRecords(0, batch)])
            request = ProduceRequest(self._transactional_id, -1, self._request_timeout_ms, [topic])
            offset = await reached(self._produce(request))
            first = offset if first < 0 else first
            self._sequence = next_sequence(self._sequence, records.count)
        return first

    async def _produce(self, request: ProduceRequest) -> int:
        """Send the batch; returns its offset."""
        node_id = await self._client.leader(*self.place)
        try:
            response = await self._client.produce_to(node_id, request)
        except TRANSIENT:
            self._client.forget_leaders([self._topic])
            raise
        assert response is not None
        produced = response.topics[0].partitions[0]
        if produced.error_code:
            self._client.forget_leaders([self._topic])
            raise broker_error(error_code(produced.error_code), message=produced.error_message, api_key=0)
        return produced.base_offset
