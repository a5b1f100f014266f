"""A producer's pace: a record each period, however many records are acknowledged meanwhile.

`Producer.poll` of librdkafka returns as soon as it has delivered a report. A load that only polls
between its records sends one more record for each acknowledgement: after an interruption its
backlog grows as fast as it shrinks, and the load measures itself.
"""

from __future__ import annotations

import time
from typing import Any


class Pace:
    """The times at which one producer sends. Not safe for several threads."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._next_at = time.monotonic()

    def wait(self, producer: Any) -> None:
        """Serve delivery reports until the next record is due. A late producer does not catch
        up.
        """
        self._next_at = max(self._next_at + self._period_s, time.monotonic())
        while (left_s := self._next_at - time.monotonic()) > 0:
            producer.poll(left_s)
        producer.poll(0)
