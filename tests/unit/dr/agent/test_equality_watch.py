"""How soon the sites of a link are compared again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.equality_watch import EqualityWatch, _Watched
from dr.proof.core.verification import LinkVerification, VerificationWatch
from tests.support.clock import ManualClock

SLOW_LOOK_MS = 4_000
EQUAL, DIFFERENT = (LinkVerification(epoch=1, differences=count) for count in (0, 412))


@pytest.mark.parametrize(
    ("states", "expected_ms"),
    [([EQUAL, None], 200_000), ([EQUAL, DIFFERENT], 20_000), ([], 200_000)],
    ids=["no difference", "one difference", "no link"],
)
def test_a_slow_comparison_is_repeated_soon_while_sites_differ(
    states: list[LinkVerification | None], expected_ms: float
) -> None:
    parts: Any = SimpleNamespace()
    watch = EqualityWatch(site="a", cache=parts, store=parts, own_address="127.0.0.1:1", clock=ManualClock())
    watch._watched = {str(number): _Watched(VerificationWatch(), state) for number, state in enumerate(states)}
    assert watch._pause_ms(SLOW_LOOK_MS) == expected_ms
