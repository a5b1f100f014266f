"""A mirror reports that it was behind for longer than the source keeps tombstones. No other event
causes that report (M8).
"""

from __future__ import annotations

import pytest

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_events import (
    Acknowledged,
    BatchesFetched,
    Command,
    CopyRenewed,
    NothingFetched,
    Settled,
    SourceChecked,
    Start,
    TargetFound,
    TombstonesKept,
)
from mirror.flow.core.tombstones import DELETE_RETENTION_MS, NOT_COMPACTED, tombstones_kept_ms
from mirror.link.core.partitions import BatchRun

KEPT_MS = 1_000
BEGAN_MS = 50_000


class Mirror:
    """One flow from its start; the test gives each record's age."""

    def __init__(self, *, target_end: int, kept_ms: int = KEPT_MS) -> None:
        self.flow = Flow("orders-0")
        self.now_ms = BEGAN_MS
        self.end = target_end
        self.tell(Start())
        self.tell(TombstonesKept(kept_ms=kept_ms))
        self.find()

    @property
    def generation(self) -> int:
        return self.flow.facts.generation

    @property
    def may_lack(self) -> bool:
        return self.flow.facts.may_lack_tombstones

    def tell(self, command: Command) -> None:
        self.flow.apply(self.flow.decide(command, self.now_ms).facts)
        self.flow.check_invariants()

    def find(self) -> None:
        self.tell(Settled(generation=self.generation))
        epoch = 0 if self.end else -1
        found = TargetFound(generation=self.generation, log_start_offset=0, log_end_offset=self.end, last_epoch=epoch)
        self.tell(found)
        self.tell(
            SourceChecked(
                generation=self.generation,
                log_start_offset=0,
                high_watermark=100,
                epoch=epoch,
                epoch_end_offset=100 if self.end else -1,
            )
        )

    def fetch(self, *, first: int | None = None, age_ms: int = 0, watermark: int = 100) -> None:
        start = self.end if first is None else first
        run = BatchRun(
            first_offset=start,
            next_offset=start + 10,
            size_bytes=1,
            record_count=10,
            first_epoch=0,
            last_epoch=0,
            max_timestamp_ms=self.now_ms - age_ms,
        )
        fetched = BatchesFetched(
            generation=self.generation,
            fetch_offset=self.flow.facts.fetch_offset,
            run=run,
            high_watermark=watermark,
            log_start_offset=0,
        )
        self.tell(fetched)
        self.end = start + 10
        self.tell(Acknowledged(generation=self.generation, log_end_offset=self.end))

    def compare(self) -> None:
        """Fetches the last batch of the copy again, and no other batch."""
        run = BatchRun(
            first_offset=self.end - 10,
            next_offset=self.end,
            size_bytes=1,
            record_count=0,
            first_epoch=0,
            last_epoch=0,
            max_timestamp_ms=-1,
            repeated_bytes=1,
            new_offset=self.end,
        )
        fetched = BatchesFetched(
            generation=self.generation,
            fetch_offset=self.end - 1,
            run=run,
            high_watermark=self.end,
            log_start_offset=0,
        )
        self.tell(fetched)
        self.tell(Acknowledged(generation=self.generation, log_end_offset=self.end))

    def is_quiet(self) -> None:
        self.tell(NothingFetched(generation=self.generation, high_watermark=self.end, log_start_offset=0))


def test_a_mirror_that_was_away_for_longer_than_tombstones_are_kept_says_so_until_its_copy_is_made_anew() -> None:
    mirror = Mirror(target_end=50)
    mirror.fetch()
    mirror.is_quiet()
    mirror.now_ms += KEPT_MS + 500
    mirror.fetch(watermark=80)
    assert mirror.may_lack
    assert f"was behind for {KEPT_MS + 500} ms," in mirror.flow.facts.reason
    assert "until `antipode links reset`" in mirror.flow.facts.reason
    mirror.tell(CopyRenewed())
    mirror.end = 0
    mirror.find()
    mirror.fetch(age_ms=10 * KEPT_MS)
    assert not mirror.may_lack


def test_a_mirror_that_is_never_behind_for_so_long_has_no_doubt() -> None:
    mirror = Mirror(target_end=50)
    for _ in range(4):
        mirror.fetch()
        mirror.is_quiet()
        mirror.now_ms += KEPT_MS - 1
    assert not mirror.may_lack


@pytest.mark.parametrize(("hole", "age_ms", "may_lack"), [(0, 10, False), (3, 10, True), (0, KEPT_MS + 1, True)])
def test_a_mirror_that_has_just_started_goes_by_what_comes_first(hole: int, age_ms: int, may_lack: bool) -> None:
    mirror = Mirror(target_end=50)
    mirror.fetch(first=50 + hole, age_ms=age_ms)
    assert mirror.may_lack is may_lack
    mirror.fetch(first=mirror.end + 5, age_ms=age_ms)  # holes are nothing special later on
    assert mirror.may_lack is may_lack


def test_a_copy_from_the_beginning_is_whole_however_old_its_records_are_unless_it_takes_too_long() -> None:
    mirror = Mirror(target_end=0)
    mirror.fetch(first=4, age_ms=100 * KEPT_MS)
    assert not mirror.may_lack
    mirror.now_ms += KEPT_MS + 1
    mirror.fetch(age_ms=100 * KEPT_MS)
    assert mirror.may_lack


def test_a_topic_that_is_not_compacted_has_no_tombstones_to_lack() -> None:
    mirror = Mirror(target_end=50, kept_ms=NOT_COMPACTED)
    mirror.fetch(first=60, age_ms=100 * KEPT_MS)
    assert not mirror.may_lack


def test_how_long_tombstones_are_kept_is_read_from_the_topics_configs() -> None:
    assert tombstones_kept_ms({}) == NOT_COMPACTED
    assert tombstones_kept_ms({"cleanup.policy": "compact,delete"}) == DELETE_RETENTION_MS
    assert tombstones_kept_ms({"cleanup.policy": "compact", "delete.retention.ms": "5"}) == 5


def test_a_batch_that_is_only_compared_raises_no_doubt() -> None:
    """The source was away for longer than it keeps tombstones, and has nothing new."""
    mirror = Mirror(target_end=50)
    mirror.fetch()
    mirror.is_quiet()
    mirror.now_ms += KEPT_MS + 500
    mirror.tell(Start())
    mirror.find()
    mirror.compare()
    assert not mirror.may_lack
    mirror.is_quiet()
    mirror.fetch()
    assert not mirror.may_lack
