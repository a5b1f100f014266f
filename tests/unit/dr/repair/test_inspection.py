"""Which batches of both sites a repair reads around suspected offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from dr.repair import inspection
from dr.repair.core.orders import Judged, Refused, RepairSides
from dr.repair.inspection import Site, judged_offsets
from tests.support.disks.log_batches import batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP, PartitionKey

KEY = ("orders", 0)
SIDES = RepairSides(active_site="a", standby_site="b", leader_epoch_floor=0)
BATCHES = 12


class Log(KafkaClient):
    """The client of a site whose log has one record in each batch, in segments of so many batches:
    an answer ends with its segment. `is_written`: the log grows with each question about its end.
    """

    def __init__(self, *segments: int, is_written: bool = False) -> None:
        self.segment_ends = [*accumulate(segments), 10**6]
        self.end_offset = BATCHES
        self.is_written = is_written

    async def offsets_at(self, partitions: Any, timestamp: int, **_: Any) -> dict[PartitionKey, int]:
        if timestamp != LATEST_TIMESTAMP:
            return dict.fromkeys(partitions, 0)
        known = dict.fromkeys(partitions, self.end_offset)
        self.end_offset += self.is_written
        return known

    def answer(self, offset: int) -> memoryview:
        end = min(self.end_offset, offset + 4, *(end for end in self.segment_ends if end > offset))
        return memoryview(b"".join(batch([b"v"], base_offset=at) for at in range(offset, end)))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetched(client: Log, _: PartitionKey, offset: int) -> memoryview:
        return client.answer(offset)

    monkeypatch.setattr(inspection, "_fetched", fetched)
    # a little more than one answer, as 8 MiB are for whole batches
    monkeypatch.setattr(inspection, "WINDOW_BYTES", 4 * len(batch([b"v"])) + 1)


async def judged(active: Log, standby: Log, last: int) -> list[Judged]:
    sites = Site(name="a", client=active), Site(name="b", client=standby)
    return await judged_offsets(KEY, 0, last, active=sites[0], standby=sites[1], sides=SIDES)


@pytest.mark.parametrize("at_standby", [(BATCHES,), (4, 1, 7), (4, 3, 5), (1,) * BATCHES])
async def test_copies_in_other_segments_are_no_difference(at_standby: Sequence[int]) -> None:
    assert await judged(Log(BATCHES), Log(*at_standby), BATCHES - 1) == []


async def test_what_is_written_and_mirrored_meanwhile_is_no_difference() -> None:
    """Of a damaged log all offsets are suspected, without an end."""
    assert await judged(Log(), Log(is_written=True), 2**62) == []


async def test_a_standby_that_was_ahead_from_the_start_differs() -> None:
    ahead = Log()
    ahead.end_offset += 1
    (found,) = await judged(Log(), ahead, 2**62)
    assert isinstance(found, Refused)
    assert (found.first_offset, found.last_offset) == (BATCHES, BATCHES)
