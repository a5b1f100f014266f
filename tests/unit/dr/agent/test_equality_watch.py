"""How soon the sites of a link are compared again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.equality_watch import EqualityWatch, _Watched
from dr.proof.core.verification import LinkVerification, VerificationWatch
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

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


async def test_the_first_look_after_a_move_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that move need the brokers, and a comparison asks them about every partition."""
    facts: Any = SimpleNamespace(links={}, has_lowest_node_id=lambda _: True)
    cache: Any = SimpleNamespace(facts=facts)
    watch = EqualityWatch(site="a", cache=cache, store=cache, own_address="127.0.0.1:1", clock=ManualClock())
    compared: list[int] = []

    async def compare(record: LinkRecord) -> None:
        compared.append(record.epoch)

    monkeypatch.setattr(watch, "_compare", compare)
    for epoch, active in [(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "a"), (3, "a")]:
        facts.links = {"a-b": LinkRecord(name="a-b", epoch=epoch, active_site=active, phase=LinkPhase.MIRRORING)}
        await watch.look()
    assert compared == [1, 1, 3]
