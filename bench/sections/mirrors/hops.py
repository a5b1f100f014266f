"""Computes where records wait on their way through a mirror of ours: pure arithmetic over the times
that three processes recorded.

The stages of a record's way; each begins at the end of the previous one, the first with the
record's acknowledgement at the source:

    turn     another fetch of the mirror was under way and is answered first
    fetch    the source answers the fetch that brings the record
    mirror   the mirror takes the answer apart, queues and sends
    target   the target appends, and the reader's fetch there is answered
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

    Times = NDArray[int64]
    Stages = NDArray[float64]

STAGES = ("turn", "fetch", "mirror", "target")
SLOWEST = 0.01
"""The share of records whose time is attributed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Batches of one partition by their first offset, with two times for each (monotonic ns): begin
    and end.
    """

    first_offset: Times
    began_ns: Times
    ended_ns: Times

    def of(self, offsets: Times) -> tuple[Times, Times]:
        """The two times of the batches that contain the records. An offset below all batches has
        the times of the first one.
        """
        import numpy as np

        at = np.maximum(np.searchsorted(self.first_offset, offsets, side="right") - 1, 0)
        return self.began_ns[at], self.ended_ns[at]


def stages_ms(*, offsets: Times, acknowledged_ns: Times, came_ns: Times, fetches: Way, appends: Way) -> Stages:
    """A row for each record, a column for each stage; they add up to the time from acknowledgement
    to arrival, or less.

    If a producer received its acknowledgement after the mirror had the record, the stages before
    the mirror are zero.
    """
    import numpy as np

    asked_ns, fetched_ns = fetches.of(offsets)
    sent_ns, _ = appends.of(offsets)
    moments = np.stack([acknowledged_ns, asked_ns, fetched_ns, sent_ns, came_ns], axis=1)
    # A stage that ended before the record was acknowledged took no time.
    reached = np.maximum.accumulate(moments, axis=1)
    return np.asarray(np.diff(reached, axis=1) / 1e6, dtype=np.float64)


def attribution(stages: Stages) -> Mapping[str, float]:
    """Mean ms in each stage of the slowest records."""
    import numpy as np

    total = stages.sum(axis=1)
    slow = stages[total >= np.quantile(total, 1 - SLOWEST)]
    return dict(zip(STAGES, (float(mean) for mean in slow.mean(axis=0)), strict=True))
