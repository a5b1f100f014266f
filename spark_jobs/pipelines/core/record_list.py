"""Records on their way to a topic, in lists that two limits bound: bytes and number. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

RECORDS_MAX = 32_767
"""The limit of Kafka's own Hadoop producer."""


@dataclass(slots=True)
class RecordList:
    """Collects values and hands them to `send`, which returns when they are acknowledged. `close`
    sends the last ones.
    """

    send: Callable[[list[bytes]], None]
    bytes_max: int
    records_max: int = RECORDS_MAX
    _values: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def add(self, value: bytes) -> None:
        """Add a value. If it would exceed a limit, the collected values are sent first."""
        if self._values and (self._bytes + len(value) > self.bytes_max or len(self._values) >= self.records_max):
            self.flush()
        self._values.append(value)
        self._bytes += len(value)

    def flush(self) -> None:
        """Send the collected values."""
        if self._values:
            self.send(self._values)
        self._values, self._bytes = [], 0

    close = flush
