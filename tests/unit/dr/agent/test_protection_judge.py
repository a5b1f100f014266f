"""When the judge of a link's protection looks, and how soon again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.protection_judge import INTERVAL_MS, INTERVAL_MS_MAX, ProtectionJudge, _Judged
from dr.sites.core.link_protection import LinkProtection, ProtectionWatch
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord

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


class Looks(ProtectionJudge):
    """Notes the links that it judges."""

    def __init__(self, cache: Any) -> None:
        parts: Any = SimpleNamespace()
        super().__init__(
            site="b", cache=cache, store=parts, channels=parts, own_address="127.0.0.1:1", clock=ManualClock()
        )
        self.judged: list[str] = []

    async def _judge(self, record: LinkRecord) -> None:
        self.judged.append(f"{record.name} {record.epoch} {LinkPhase.Name(record.phase)}")


async def test_a_look_just_after_a_move_leaves_the_brokers_to_the_clients() -> None:
    links: dict[str, LinkRecord] = {}
    judge = Looks(SimpleNamespace(facts=SimpleNamespace(links=links, has_lowest_node_id=lambda _: True)))

    async def look_at(active_site: str, epoch: int, phase: LinkPhase.ValueType) -> list[str]:
        for name in ("a-b", "other"):
            is_moved = name == "a-b"
            links[name] = LinkRecord(
                name=name,
                active_site=active_site if is_moved else "b",
                epoch=epoch if is_moved else 1,
                phase=phase if is_moved else LinkPhase.MIRRORING,
            )
        judge.judged.clear()
        await judge.look()
        return list(judge.judged)

    other = "other 1 MIRRORING"
    assert await look_at("a", 1, LinkPhase.MIRRORING) == [other]
    assert await look_at("b", 2, LinkPhase.MIRRORING) == [other]
    assert await look_at("b", 2, LinkPhase.MIRRORING) == ["a-b 2 MIRRORING", other]
    assert await look_at("b", 2, LinkPhase.FENCED) == [other]
    assert await look_at("b", 2, LinkPhase.FENCED) == ["a-b 2 FENCED", other]
