"""The stages in which the slowest records waited, from the times that a mirror noted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.sections.mirrors.hops import STAGES, Way, attribution, stages_ms
from bench.sections.mirrors.traced_mirror import Trace, read_ways
from wire.protocol.ids import TopicPartition

MS = 1_000_000


def way(*batches: tuple[int, int, int]) -> Way:
    columns = np.array(batches, dtype=np.int64)
    return Way(first_offset=columns[:, 0], began_ns=columns[:, 1] * MS, ended_ns=columns[:, 2] * MS)


def stages(*, acknowledged: list[int], came: list[int], fetches: Way, appends: Way) -> list[list[float]]:
    found = stages_ms(
        offsets=np.arange(len(acknowledged)),
        acknowledged_ns=np.array(acknowledged) * MS,
        came_ns=np.array(came) * MS,
        fetches=fetches,
        appends=appends,
    )
    return [list(row) for row in found]


def test_each_stage_begins_where_the_one_before_ended_and_they_add_up_to_the_lag() -> None:
    (row,) = stages(acknowledged=[10], came=[25], fetches=way((0, 12, 15)), appends=way((0, 19, 22)))
    assert dict(zip(STAGES, row, strict=True)) == {"turn": 2, "fetch": 3, "mirror": 4, "target": 6}


def test_a_fetch_that_waited_before_the_record_was_acknowledged_counts_from_then() -> None:
    (row,) = stages(acknowledged=[10], came=[20], fetches=way((0, 1, 13)), appends=way((0, 14, 18)))
    assert row == [0, 3, 1, 6]


def test_stages_that_ended_before_the_acknowledgement_was_noticed_took_no_time() -> None:
    (row,) = stages(acknowledged=[16], came=[20], fetches=way((0, 1, 13)), appends=way((0, 14, 18)))
    assert row == [0, 0, 0, 4]


def test_records_of_one_batch_share_its_times_and_the_next_batch_has_its_own() -> None:
    fetches, appends = way((0, 1, 5), (2, 6, 9)), way((0, 5, 7), (2, 9, 11))
    rows = stages(acknowledged=[2, 3, 7], came=[8, 8, 12], fetches=fetches, appends=appends)
    assert rows == [[0, 3, 0, 3], [0, 2, 0, 3], [0, 2, 0, 3]]


def test_only_the_slowest_hundredth_is_attributed() -> None:
    rows = np.ones((1_000, len(STAGES)))
    rows[:5, 1] = 50
    rows[5:10, 3] = 40
    assert attribution(rows) == pytest.approx({"turn": 1, "fetch": 25.5, "mirror": 1, "target": 20.5})


def test_a_trace_gives_back_the_batches_of_each_partition_by_offset(tmp_path: Path) -> None:
    trace = Trace()
    for topic, partition, offset, began in (("t", 0, 5, 1), ("u", 0, 0, 2), ("t", 1, 0, 3), ("t", 0, 2, 4)):
        trace.add("fetch", TopicPartition(topic, partition), offset, began)
    trace.add("append", TopicPartition("t", 0), 2, 9)
    trace.write(tmp_path / "trace.npz")
    fetches, appends = read_ways(tmp_path / "trace.npz", "t", 0)
    assert (list(fetches.first_offset), list(fetches.began_ns)) == ([2, 5], [4, 1])
    assert list(appends.first_offset) == [2]
    assert (fetches.ended_ns > 0).all()
