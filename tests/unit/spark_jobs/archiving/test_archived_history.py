"""An archive of a log that a failover has changed below the archive's end: a run must find it by
the end of the last archived leader epoch, also when the new log is longer than the archive.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.archiving import archive_run
from spark_jobs.archiving.archive_run import ArchiveRequest, ArchiveRun
from spark_jobs.archiving.core.archived_history import other_histories, tails
from spark_jobs.archiving.site_topics import SiteTopics
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.logs.core.splits import LogEnds
from tests.unit.spark_jobs.archiving.test_archive_plan import LOG, ORDERS, hole, manifest, range_of

KEY = ("orders", 0)
ARCHIVED = [manifest(1, range_of(0, 100, epoch=4)), manifest(2, range_of(100, 120, epoch=5), holes=(hole(120, 125),))]


def found(epoch: int, end: int) -> str:
    return other_histories(tails(ARCHIVED), {KEY: (epoch, end)}).get(LOG, "")


def test_a_log_has_another_history_where_the_archived_epoch_ends_before_the_archive() -> None:
    assert found(5, 120) == found(5, 130) == ""
    # all that is archived of the epoch was compacted away, or expired
    assert found(4, 120) == found(5, 150) == ""
    assert "offsets 110 to 119 up to leader epoch 5" in found(5, 110)
    assert "offsets 90 to 119 up to leader epoch 5" in found(4, 90)
    assert found(-1, -1) == other_histories(tails(ARCHIVED), {}).get(LOG, "") == ""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> dict[Any, tuple[int, int]]:
    """A site whose log of `orders` has offsets 0 to 199, and where its epoch 5 ends."""
    epoch_ends = {KEY: (5, 120)}

    def ends_of_epochs(bootstrap: str, epochs: dict[Any, int]) -> dict[Any, tuple[int, int]]:
        assert epochs == {KEY: 5}
        return epoch_ends

    monkeypatch.setattr(archive_run, "site_topics", lambda *_: SiteTopics("c", (ORDERS,)))
    monkeypatch.setattr(archive_run, "log_ends", lambda *_: {KEY: LogEnds(start_offset=0, end_offset=200)})
    monkeypatch.setattr(archive_run, "log_sizes", lambda *_: {KEY: 1_000})
    monkeypatch.setattr(archive_run, "ends_of_epochs", ends_of_epochs)
    monkeypatch.setattr(ArchiveStore, "manifests", lambda _: ARCHIVED)
    return epoch_ends


def planned() -> tuple[int, tuple[str, ...]]:
    report = ArchiveRun(ArchiveRequest(bootstrap="none:1", to="file:///archive")).dry_run(cores=1)
    return report.planned_offsets, report.problems


def test_a_run_goes_on_with_the_archived_history_and_takes_nothing_of_another_one(
    site: dict[Any, tuple[int, int]],
) -> None:
    assert planned() == (75, ())
    site[KEY] = (5, 110)
    offsets, problems = planned()
    assert offsets == 0
    assert "the log has another history from offset 110 on" in problems[0]
