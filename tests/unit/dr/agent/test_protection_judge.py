"""How soon the judge of a link's protection looks again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.protection_judge import INTERVAL_MS, INTERVAL_MS_MAX, ProtectionJudge, _Judged
from dr.sites.core.link_protection import LinkProtection, ProtectionWatch
from tests.support.clock import ManualClock

SLOW_LOOK_MS = 300
PROTECTED, UNPROTECTED = (LinkProtection(epoch=1, since_ms=0, reason=reason) for reason in ("", "site a has no link"))


@pytest.mark.parametrize(
    ("verdicts", "expected_ms"),
    [
        ([PROTECTED, PROTECTED], INTERVAL_MS_MAX),
        ([PROTECTED, UNPROTECTED], INTERVAL_MS),
        ([PROTECTED, None], INTERVAL_MS),
        ([], INTERVAL_MS_MAX),
    ],
    ids=["all protected", "one unprotected", "one not judged", "none"],
)
def test_a_slow_look_is_repeated_soon_while_a_link_is_not_protected(
    verdicts: list[LinkProtection | None], expected_ms: float
) -> None:
    parts: Any = SimpleNamespace()
    judge = ProtectionJudge(
        site="b", cache=parts, store=parts, channels=parts, own_address="127.0.0.1:1", clock=ManualClock()
    )
    judge._judged = {
        str(number): _Judged(ProtectionWatch(), None, 0.0, 0.0, verdict) for number, verdict in enumerate(verdicts)
    }
    assert judge._pause_ms(SLOW_LOOK_MS) == expected_ms
