"""A comparison's report on sites without faults."""

from __future__ import annotations

from typing import Any

import pytest

from bench.false_alarms import BEHIND, EQUAL, FALSE_ALARM, NOT_COMPARED, verdict_of

LAG = {"kind": "missing", "detail": "beyond the end of the other log"}


def report(verdict: str, *findings: dict[str, str], problems: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"verdict": verdict, "findings": list(findings), "problems": list(problems)}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (report("equal"), EQUAL),
        (report("different", LAG), BEHIND),
        (report("different", LAG, {**LAG, "kind": "extra"}), FALSE_ALARM),
        (report("different", {"kind": "diverged", "detail": "crc"}), FALSE_ALARM),
        (report("could not compare", LAG, problems=("site b does not answer",)), NOT_COMPARED),
        ({}, NOT_COMPARED),
    ],
)
def test_only_a_difference_that_is_no_lag_is_a_false_alarm(found: dict[str, Any], verdict: str) -> None:
    assert verdict_of(found, "an error")[0] == verdict


def test_the_reason_is_kept() -> None:
    assert verdict_of({}, " no broker answers\n")[1] == "no broker answers"
    assert verdict_of(report("could not compare", problems=("one", "two")), "")[1] == "one; two"
