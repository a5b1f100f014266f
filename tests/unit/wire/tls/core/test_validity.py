"""The problem of a certificate at a given time."""

from __future__ import annotations

import pytest

from wire.tls.core.validity import WARNED_BEFORE_MS, Validity

BEGINS_MS = 1_700_000_000_000
ENDS_MS = BEGINS_MS + 3 * WARNED_BEFORE_MS


@pytest.mark.parametrize(
    ("now_ms", "problem"),
    [
        (BEGINS_MS - 1, "a certificate is not valid yet: clients refuse it"),
        (BEGINS_MS, ""),
        (ENDS_MS - WARNED_BEFORE_MS - 1, ""),
        (ENDS_MS - WARNED_BEFORE_MS, "a certificate expires soon"),
        (ENDS_MS - 1, "a certificate expires soon"),
        (ENDS_MS, "a certificate has expired: clients refuse it"),
    ],
)
def test_a_certificate_that_clients_refuse_now_or_soon_is_a_problem(now_ms: int, problem: str) -> None:
    validity = Validity(subject="CN=broker", serial="1f", begins_at_ms=BEGINS_MS, ends_at_ms=ENDS_MS)
    assert validity.problem(now_ms) == problem
