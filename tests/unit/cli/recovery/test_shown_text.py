"""What commands show people. Promised: names with brackets, which groups and paths may have, are
shown as they are, and end no command.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.clients.produce import Run
from cli.recovery.drill import print_result
from cli.recovery.failover import print_account
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from dr.drill.drill_report import ReportFiles
from dr.drill.drill_results import DrillResult
from dr.sites.core.group_offsets import GroupLoss
from dr.sites.core.loss import LossAccount


def test_a_drill_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = DrillResult(
        name="n", description="", link="a-b", started_at_ms=0, reason="see [/log]", restore_problems=["[/x] is down"]
    )
    page = tmp_path / "[/report].html"
    print_result(result, ReportFiles(html=page, json=page, junit=page))
    shown = capsys.readouterr().out
    assert "see [/log]" in shown
    assert "[/x] is down" in shown
    assert "[/report].html" in shown


def test_an_account_is_shown_with_its_groups_whatever_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    groups = GroupLoss(is_exact=True, known_lost_offsets=1, last_contact_ms=0, named=("[/etl] in orders-0",))
    account = LossAccount(
        link="a-b", epoch=2, from_site="a", to_site="b", accounted_at_ms=0, partitions=(), groups=groups
    )
    print_account(account)
    assert "[/etl] in orders-0" in capsys.readouterr().out


def test_the_report_of_lines_names_the_topic_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(
        "[/a]",
        lambda line: ProducerRecord(topic="[/a]", value=line),
        ProducerOptions(),
        file=None,
        is_dry_run=False,
        is_spread_by_keys=False,
    )
    run.report()
    assert "records are in [/a]" in capsys.readouterr().out
