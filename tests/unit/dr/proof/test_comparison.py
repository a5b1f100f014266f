"""How long a comparison by digests waits for one site to reach the other one's ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from dr.proof import comparison
from dr.proof.comparison import ComparisonRequest, compare_sites
from dr.proof.core.equality import EqualityReport
from tests.support.clock import ManualClock
from wire.batches.leaf_digests import LEAF_OFFSETS
from wire.client.cluster_metadata import PartitionMetadata, TopicMetadata
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery

RECORDS = 10
POLL_MS = 500
SETTLE_TIMEOUT_MS = 10_000


class SlowSite:
    """Both sites: one of them stands still for a time, and then has what the other one has."""

    def __init__(self, clock: ManualClock, reaches_at_ms: float, slow: str) -> None:
        self._clock = clock
        self._reaches_at_ms = reaches_at_ms
        self._slow = slow

    def site(self, name: str, *_: object) -> Any:
        """The digests of one site, in the place of `SiteDigests`."""
        return _Digests(name, self._clock, self._reaches_at_ms if name == self._slow else 0.0)


class _Digests:
    def __init__(self, site: str, clock: ManualClock, reaches_at_ms: float) -> None:
        self.site = site
        self._clock = clock
        self._reaches_at_ms = reaches_at_ms

    async def topics(self) -> dict[str, TopicMetadata]:
        partition = PartitionMetadata(0, ErrorCode.none, 1, 0, (1,), (1,))
        return {"orders": TopicMetadata("orders", None, ErrorCode.none, False, {0: partition})}

    async def ask(self, queries: Iterable[RangeQuery]) -> dict[RangeQuery, RangeContent]:
        self._clock.advance(POLL_MS)
        end = RECORDS if self._clock.monotonic_ms() >= self._reaches_at_ms else 1
        content = RangeContent(ErrorCode.none, "", 0, end, 0, LEAF_OFFSETS, b"equal everywhere")
        return dict.fromkeys(queries, content)

    async def damaged_replicas(self) -> tuple[list[Any], list[str]]:
        return [], []


async def compared(monkeypatch: pytest.MonkeyPatch, *, reaches_at_ms: float, slow: str = "b") -> EqualityReport:
    clock = ManualClock()
    monkeypatch.setattr(comparison, "SiteDigests", SlowSite(clock, reaches_at_ms, slow).site)
    monkeypatch.setattr(comparison, "SETTLE_POLL_S", 0)
    request = ComparisonRequest(
        source_site="a",
        target_site="b",
        source_bootstrap="127.0.0.1:1",
        target_bootstrap="127.0.0.1:2",
        settle_timeout_ms=SETTLE_TIMEOUT_MS,
    )
    return await compare_sites(request, clock)


async def test_a_target_that_stands_still_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    report = await compared(monkeypatch, reaches_at_ms=SETTLE_TIMEOUT_MS - 3 * POLL_MS)
    assert (report.verdict, report.verdict.exit_code) == ("equal", 0)


async def test_a_target_that_is_behind_when_time_is_up_lacks_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = await compared(monkeypatch, reaches_at_ms=10 * SETTLE_TIMEOUT_MS)
    assert (report.verdict, report.verdict.exit_code) == ("different", 1)
    ((found,),) = (one.differences for one in report.partitions)
    assert (found.kind, found.first_offset, found.last_offset) == ("missing", 1, RECORDS - 1)
    assert found.detail == "beyond the end of the other log"


async def test_a_source_that_follows_the_target_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover the writers are at the target."""
    report = await compared(monkeypatch, reaches_at_ms=8 * POLL_MS, slow="a")
    assert report.verdict == "equal"


async def test_a_source_that_does_not_follow_lacks_what_was_written_at_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = await compared(monkeypatch, reaches_at_ms=10 * SETTLE_TIMEOUT_MS, slow="a")
    ((found,),) = (one.differences for one in report.partitions)
    assert (found.kind, found.first_offset, found.last_offset) == ("extra", 1, RECORDS - 1)
