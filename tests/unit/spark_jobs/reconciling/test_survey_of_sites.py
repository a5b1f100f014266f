"""The logs that a reconciliation compares, from two sites of which one may be behind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_jobs.logs.core.splits import LogEnds, is_reached
from spark_jobs.reconciling import request as module
from spark_jobs.reconciling.request import Request, surveyed
from wire.protocol.ids import PartitionKey

KEY = ("t", 0)
REQUEST = Request(source_site="a", target_site="b", source_bootstrap="a:1", target_bootstrap="b:1")


class Logs:
    """A log at each site. Each question about an end finds it one record further, up to `ends`."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.now = {"a": 90, "b": 100}

    def log_ends(self, bootstrap: str, _: object) -> dict[PartitionKey, LogEnds]:
        site = bootstrap[0]
        self.now[site] = min(self.ends[site], self.now[site] + 1)
        return {KEY: LogEnds(start_offset=0, end_offset=self.now[site])}

    def settled_ends(
        self, bootstrap: str, is_wanted: object, snapshot: Mapping[PartitionKey, LogEnds], *, timeout_ms: int
    ) -> dict[PartitionKey, LogEnds]:
        """The ends when the snapshot is reached, or when they grow no more."""
        assert timeout_ms > 0
        before: dict[PartitionKey, LogEnds] = {}
        found = self.log_ends(bootstrap, is_wanted)
        while not is_reached(snapshot, found) and found != before:
            before, found = found, self.log_ends(bootstrap, is_wanted)
        return found


@pytest.mark.parametrize(("source_end", "is_ahead"), [(150, False), (95, True)])
def test_records_at_the_target_are_extra_only_if_the_source_does_not_get_them(
    monkeypatch: pytest.MonkeyPatch, source_end: int, is_ahead: bool
) -> None:
    """After a failover of the link the writers are at the target, and the source follows."""
    logs = Logs(a=source_end, b=150)
    monkeypatch.setattr(module, "log_ends", logs.log_ends)
    monkeypatch.setattr(module, "settled_ends", logs.settled_ends)
    (extent,) = surveyed(REQUEST, lambda _: None)
    assert (extent.target_until > extent.source_until) == is_ahead
