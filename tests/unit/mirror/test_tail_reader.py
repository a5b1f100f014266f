"""Where a target's log that has lost something is still the one that was noted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mirror import tail_reader
from mirror.core.naming import Naming, NamingPolicy
from mirror.core.partitions import PartitionKey
from mirror.core.translation import Position
from mirror.ports import LogEnds
from mirror.tail_reader import TailReader
from tests.support.clock import ManualClock
from wire.records import Record, encode_batch

OURS, STRANGER = 7, 99
KEY = PartitionKey("orders", 0)
BATCH = 100


def batch(base_offset: int, producer_id: int, base_sequence: int) -> bytes:
    records = [Record(b"k", b"v", timestamp_ms=1)] * BATCH
    return encode_batch(
        records, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=base_sequence
    )


@pytest.mark.parametrize("strangers", [0, 10, 100])
@pytest.mark.parametrize("kept", [0, 2])
async def test_a_log_is_kept_up_to_what_it_took_from_the_middle_however_much_others_wrote_since(
    monkeypatch: pytest.MonkeyPatch, kept: int, strangers: int
) -> None:
    producers = [*((OURS, number * BATCH) for number in range(kept)), (OURS, 50 * BATCH)]
    producers += [(STRANGER, number * BATCH) for number in range(strangers)]
    log = [batch(index * BATCH, *producer) for index, producer in enumerate(producers)]

    async def fetch(_client: Any, _topic: str, _partition: int, offset: int, **_: Any) -> bytes:
        return b"".join(log[offset // BATCH :][:30])

    monkeypatch.setattr(tail_reader, "fetch_records", fetch)
    nobody = cast("Any", None)
    reader = TailReader(
        source=nobody,
        target=nobody,
        naming=Naming(policy=NamingPolicy.IDENTITY, source_alias="a", target_alias="b"),
        translations=nobody,
        provenance=nobody,
        sieve=nobody,
        may_append_to_others=False,
        clock=ManualClock(),
        late_within_ms=0,
    )
    position = Position(target_next=1_000_000, sequences={OURS: (0, 50 * BATCH)})
    end = LogEnds(log_start_offset=0, end_offset=len(log) * BATCH, last_epoch=0)
    assert await reader._end_of_copy(KEY, position, end) == kept * BATCH
