"""A restore that fails or is interrupted names the topics that may hold a part of their records,
also when the site fails with it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cli.spark import restore
from runtime.process import OperationalFailure
from spark_jobs.archiving.core.restore_plan import RestorePlan, restore_plan
from tests.unit.spark_jobs.archiving.test_archive_plan import manifest, range_of

PLAN = restore_plan([manifest(1, range_of(0, 5))], lambda _: True)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the command says, in order; it opens and closes no link."""
    lines: list[str] = []

    async def opened(plan: RestorePlan, **_: Any) -> Any:
        return SimpleNamespace(name="antipode-restore", epoch=1)

    async def closed(record: Any, plan: RestorePlan, **_: Any) -> None:
        lines.append("closed")

    monkeypatch.setattr(restore, "_opened", opened)
    monkeypatch.setattr(restore, "_closed", closed)
    monkeypatch.setattr(restore, "report_progress", lines.append)
    return lines


def restored(monkeypatch: pytest.MonkeyPatch, failure: BaseException | None) -> None:
    def restore_logs(*_: Any, **__: Any) -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr("spark_jobs.archiving.restore.restore_logs", restore_logs)
    spark: Any = None
    restore.restored(spark, PLAN, archive="file:///archive", bootstrap="none:1", site="b", known={})


@pytest.mark.parametrize("failure", [OperationalFailure("orders-0: no leader"), KeyboardInterrupt()])
def test_the_topics_of_a_restore_that_did_not_end_are_named_before_clients_can_use_them(
    monkeypatch: pytest.MonkeyPatch, said: list[str], failure: BaseException
) -> None:
    with pytest.raises(type(failure)):
        restored(monkeypatch, failure)
    named, closed = said
    assert "may hold a part of their records" in named
    assert ": orders. Delete" in named
    assert closed == "closed"


def test_a_restore_that_ended_names_none(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    restored(monkeypatch, None)
    assert said == ["closed"]
