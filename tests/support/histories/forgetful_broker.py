"""The log of one partition of a target with Kafka's rule for sequences, at a broker that may forget
its producers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from wire.batches.record_batch import BatchHeader, encode_header, read_header


@dataclass
class ForgetfulBroker:
    """One partition of a target."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    producers: dict[int, tuple[int, int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def produce(self, batch: bytes) -> int | None:
        """The offset; None: the sequence is refused."""
        header = read_header(batch)
        if header.producer_id >= 0:
            epoch, last, recent = self.producers.get(header.producer_id, (-1, -1, deque(maxlen=5)))
            for first, last_of_batch, offset in recent:
                if (first, last_of_batch, epoch) == (header.base_sequence, header.last_sequence, header.producer_epoch):
                    return offset
            if epoch > header.producer_epoch:
                return None
            if epoch == header.producer_epoch and header.base_sequence != last + 1:
                return None
            if -1 < epoch < header.producer_epoch and header.base_sequence != 0:
                return None
            if epoch != header.producer_epoch:
                recent = deque(maxlen=5)
            recent.append((header.base_sequence, header.last_sequence, self.end))
            self.producers[header.producer_id] = (header.producer_epoch, header.last_sequence, recent)
        offset = self.end
        records = batch[61:]
        self.batches.append(encode_header(header._replace(base_offset=offset), records) + records)
        self.end += header.last_offset_delta + 1
        return offset

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]
