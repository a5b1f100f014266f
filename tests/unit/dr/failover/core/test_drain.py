"""How long a failover from a lost source waits for records that may still arrive."""

from __future__ import annotations

import pytest

from dr.failover.core.completion import completion
from dr.failover.core.drain import Drain
from dr.failover.core.known_source import KnownSource
from dr.failover.core.steps import FailoverPolicy
from tests.unit.dr.core.link_model import KEY, ModelLink
from wire.protocol.ids import TopicPartition

POLICY = FailoverPolicy(settle_ms=100)


@pytest.mark.parametrize(
    ("settled_at", "waits_ms"),
    [
        (2, 0),  # the logs end where they ended when they had stopped growing
        (1, 100),  # a record has arrived since then
        (None, 100),
    ],
)
def test_a_lost_source_is_awaited_until_nothing_has_arrived_for_a_while(settled_at: int | None, waits_ms: int) -> None:
    link = ModelLink()
    for number in range(2):
        assert link.a.write(f"v{number}")
    link.mirror()
    link.a.is_up = False
    ends: dict[TopicPartition, int] | None = None if settled_at is None else {KEY: settled_at}
    known = KnownSource(to_site="b")
    drain = Drain(known, POLICY, settled_ends=ends)
    evidence = link.evidence("b")
    assert evidence.target is not None
    waited_ms = 0
    drain.observe_target(evidence.target, 1_000)
    while not drain.is_over(evidence, completion(evidence, known), 1_000 + waited_ms):
        drain.begin(1_000)
        waited_ms += 10
        drain.observe_target(evidence.target, 1_000 + waited_ms)
        assert waited_ms <= waits_ms
    assert waited_ms == waits_ms
