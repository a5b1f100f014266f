"""The demo replaces only its own leftovers, and the checker accepts its plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from cli.processes.demo import PLAN, emptied
from dr.drill.plan.drill_plan import load_plan


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    first = emptied(tmp_path / "demo")
    (first / "left-over").touch()
    assert not (emptied(tmp_path / "demo") / "left-over").exists()


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("keep me")
    with pytest.raises(typer.Exit) as ended:
        emptied(tmp_path)
    assert ended.value.exit_code == 2
    assert (tmp_path / "letter").read_text() == "keep me"


def test_the_plan_reconciles_before_and_after_the_disaster_and_after_the_way_back() -> None:
    plan = load_plan(PLAN)
    verbs = [step.verb for step in plan.steps]
    steps = [verb for verb in verbs if verb in ("reconcile", "kill", "fail_over", "reinstate", "switch_over")]
    assert steps == ["reconcile", "kill", "fail_over", "reconcile", "reinstate", "switch_over", "reconcile"]


def test_a_query_reads_at_one_site_before_it_is_lost_and_at_the_other_one_afterwards() -> None:
    plan = load_plan(PLAN)
    titles = [step.title for step in plan.steps]
    query = "query departure-files"
    order = [
        f"start {query} at a",
        f"wait until {query} has stored records",
        "kill site a",
        f"start {query} at b",
        f"finish {query}",
    ]
    assert [title for title in titles if title in order] == order
