"""The quarantine in `antipode status` and `antipode links check`."""

from __future__ import annotations

from typing import Any

import pytest

from dr.links.core.link_preflight import Outcome, quarantine_check
from dr.sites.core.quarantine_sentences import quarantine_problem, quarantine_sentence
from wire.control.broker_pb2 import QuarantineUse

HOUR_MS = 3_600_000


def use(**more: Any) -> QuarantineUse:
    fields = {"node_id": 1, "entries": 2, "bytes": 700, "fullest_partition": "orders-0", "fullest_percent": 12.4}
    return QuarantineUse(**{**fields, **more})


@pytest.mark.parametrize(
    ("left_ms", "duration"),
    [(72 * HOUR_MS, "3 days"), (47 * HOUR_MS, "47 hours"), (119 * 60_000, "119 minutes"), (61_000, "61 seconds")],
)
def test_how_full_it_is_and_when_the_first_entry_expires(left_ms: int, duration: str) -> None:
    sentence = quarantine_sentence("a", use(first_expiring="0.cut.x", expires_in_ms=left_ms))
    assert sentence == (
        "quarantine of broker 1 at a: 2 entries, 700 bytes; orders-0 uses 12 % of its bound; the first, 0.cut.x, "
        f"expires in {duration}"
    )
    assert "none expires" in quarantine_sentence("a", use())
    assert not quarantine_problem("a", use(first_expiring="0.cut.x", expires_in_ms=left_ms))


def test_an_alarm_names_the_remedy() -> None:
    expiring = use(first_expiring="0.cut.x", expires_in_ms=HOUR_MS, is_expiring=True)
    assert "replay or export it, or raise antipode.quarantine.retention.ms" in quarantine_problem("a", expiring)
    full = use(fullest_percent=80.0)
    assert "raise antipode.truncated.records.max.bytes" in quarantine_problem("a", full)
    found = quarantine_check([("a", use()), ("b", expiring), ("b", full)])
    assert found.outcome is Outcome.WARNING
    assert found.detail.count("at b") == 2
    assert "at a" not in found.detail


def test_without_an_alarm_the_check_passes() -> None:
    assert quarantine_check([]).detail == "empty at both sites"
    found = quarantine_check([("a", use())])
    assert (found.outcome, "2 entries" in found.detail) == (Outcome.OK, True)
