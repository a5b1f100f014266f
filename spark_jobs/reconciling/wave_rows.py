"""The questions that the comparison of a wave asks about its batches and records. Spark answers
them for large logs (`spark_rows.py`), this process for small ones (`process_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.ranges import RangeKey, RangeSum


class WaveRows(Protocol):
    """The batches of a wave at both sites. OperationalFailure when a site cannot be read. No answer
    has more than `limit` runs.
    """

    def digests(self, range_offsets: int) -> list[RangeSum]:
        """The sums of all ranges of `range_offsets` offsets."""
        ...

    def defects(self, limit: int) -> list[Run]:
        """The defects within one log."""
        ...

    def differing_batches(self, ranges: Sequence[RangeKey], range_offsets: int, limit: int) -> list[Run]:
        """The batches of these ranges that one site alone has."""
        ...

    def differing_records(self, plan: Sequence[Extent], limit: int) -> list[Run]:
        """The records in these extents that one site alone has; opens their batches."""
        ...

    def compacted_differences(self, plan: Sequence[Extent], limit: int) -> tuple[list[Run], list[Run]]:
        """The records of these whole partitions that one site alone has: without a reason, and
        explained by compaction.
        """
        ...

    def release(self) -> None:
        """Free the data that is kept between questions."""
        ...
