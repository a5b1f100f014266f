"""How long a source keeps what is not mirrored yet, and when a person is to be warned."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mirror.flow.core.retention import is_at_risk, part_used, retention_ms


@pytest.mark.parametrize(
    ("configs", "expected_ms"),
    [
        ({"retention.ms": "1000"}, 1000),
        ({"retention.ms": "1000", "cleanup.policy": "compact,delete"}, 1000),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, -1),
        ({"retention.ms": "-1"}, -1),
        ({"retention.ms": "soon"}, -1),
        ({}, -1),
    ],
)
def test_retention_is_what_the_topic_says_where_it_deletes(configs: Mapping[str, str], expected_ms: int) -> None:
    assert retention_ms(configs) == expected_ms


def test_an_unknown_retention_is_no_risk() -> None:
    assert part_used(-1, 1000) == part_used(1000, -1) == part_used(1000, 0) == 0.0
    assert not is_at_risk(0.0, was_at_risk=True)


def test_a_warning_comes_at_half_of_the_retention_and_does_not_come_and_go() -> None:
    assert not is_at_risk(part_used(499, 1000), was_at_risk=False)
    assert is_at_risk(part_used(500, 1000), was_at_risk=False)
    assert is_at_risk(part_used(450, 1000), was_at_risk=True)
    assert not is_at_risk(part_used(399, 1000), was_at_risk=True)
