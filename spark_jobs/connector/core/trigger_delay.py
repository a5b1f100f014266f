"""When a stream waits for more records before it begins a batch (`minOffsetsPerTrigger`,
`maxTriggerDelay`): as in Spark's Kafka connector, until enough offsets wait or the time is over.

Pure: the caller gives the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wire.protocol.ids import PartitionKey


@dataclass(slots=True, kw_only=True)
class TriggerDelay:
    """One query's delay. `offsets_min` 0 waits for nothing."""

    offsets_min: int
    delay_ms_max: int
    last_batch_at_ms: float | None = None

    def is_waiting(self, starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int], now_ms: float) -> bool:
        """True if the batch from `starts` to `ends` is put off. The first batch of a driver is
        not.
        """
        is_due = self.last_batch_at_ms is None or now_ms - self.last_batch_at_ms >= self.delay_ms_max
        offsets = sum(max(0, end - starts.get(key, end)) for key, end in ends.items())
        if not is_due and offsets < self.offsets_min:
            return True
        if offsets:
            self.last_batch_at_ms = now_ms
        return False
