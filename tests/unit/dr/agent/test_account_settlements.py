"""An account becomes final at both sites, the active one first, once the passive site's brokers
have no records of their own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.account_settlements import AccountSettlements
from dr.agent.epoch_work import FIRST_AFTER_MS
from dr.agent.own_brokers import BrokerAnswer
from dr.sites.core.loss import LossAccount, PartitionLoss
from tests.support.clock import ManualClock
from wire.control.broker_pb2 import DescribePartitionsReply, QuarantinedEnd
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.control.partition_columns import FIELDS, message_of

FLOOR = 1 << 16
LOSS = PartitionLoss(
    topic="flights",
    partition=0,
    kept_below=100,
    source_end=103,
    is_source_end_exact=False,
    known_lost_records=3,
    last_contact_ms=40,
)
ACCOUNT = LossAccount(
    link="a-b",
    epoch=2,
    from_site="a",
    to_site="b",
    accounted_at_ms=0,
    partitions=(LOSS,),
    leader_epoch_floor=FLOOR,
)


class Scene:
    """The agent of site a, which came back, its brokers, and both sites' stores."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.here = {2: ACCOUNT.to_json()}
        self.there = {2: ACCOUNT.to_json()}
        self.log_end, self.own_band_from = 140, -1
        self.kept: list[QuarantinedEnd] | None = []
        self.is_active_up = self.is_broker_up = True
        self.asked = 0
        channels: Any = SimpleNamespace(site_agent=lambda _: self)
        store: Any = SimpleNamespace(accounts=self)
        brokers: Any = self
        self.topic_names: tuple[str, ...] = ("flights",)
        cache: Any = self
        self.settlements = AccountSettlements(
            "a", cache=cache, store=store, brokers=brokers, channels=channels, clock=self.clock
        )

    async def stored(self, _: str) -> dict[int, str]:
        """Plays AccountStore."""
        return dict(self.here)

    async def record(self, _: str, *, epoch: int, document: str) -> None:
        """Plays AccountStore."""
        self.here[epoch] = document

    async def RecordFailover(self, request: Any, **_options: float) -> None:
        """Plays the active site's agent."""
        if not self.is_active_up:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.there[request.epoch] = request.json

    async def observe(self, _: str, known: None, *, accepts_columns: bool) -> list[BrokerAnswer]:
        """Plays OwnBrokers."""
        self.asked += 1
        if not self.is_broker_up:
            return [BrokerAnswer(node_id=1, reply=None, problem="no answer")]
        assert known is None
        assert accepts_columns
        epochs, starts = ([0, FLOOR], [0, self.own_band_from]) if self.own_band_from >= 0 else ([0], [0])
        fields = dict.fromkeys(FIELDS, 0) | {"log_end_offset": self.log_end}
        columns = message_of([("flights", epochs, starts, tuple(fields.values()))])
        return [BrokerAnswer(node_id=1, reply=DescribePartitionsReply(columns=columns))]

    async def quarantined(self, _: str) -> list[QuarantinedEnd] | None:
        """Plays OwnBrokers."""
        return self.kept

    def reinstate(self, *, epoch: int = 2) -> None:
        """Makes the partition follow the active site again."""
        self.own_band_from = 100
        end = QuarantinedEnd(topic="flights", first_offset=100, end_offset=140, size_bytes=900, name="one")
        end.link_epoch = epoch
        self.kept = [end]

    async def look(self, *, active: str = "b", epoch: int = 2, floor: int = FLOOR) -> None:
        """Runs a round of the agent, a minute later, and another one, because the first one of an
        epoch only notes the epoch.
        """
        record = LinkRecord(
            name="a-b",
            source_site="a",
            target_site="b",
            epoch=epoch,
            leader_epoch_floor=floor,
            active_site=active,
            phase=LinkPhase.MIRRORING,
            sites={"b": LinkSite(agents=["b:1"])},
        )
        self.clock.advance(60_000)
        await self.settlements.look(record)
        self.clock.advance(FIRST_AFTER_MS)
        await self.settlements.look(record)

    def final(self) -> list[bool]:
        """Whether the account is final here, and at the active site."""
        return [LossAccount.from_json(kept[2]).is_final for kept in (self.here, self.there)]


async def test_an_account_becomes_final_at_both_sites_when_the_site_follows_again() -> None:
    scene = Scene()
    await scene.look()
    assert scene.final() == [False, False]
    scene.reinstate()
    await scene.look()
    assert scene.final() == [True, True]
    found = LossAccount.from_json(scene.there[2])
    assert (found.found_records, found.found_bytes, found.differences) == (40, 900, [])
    asked = scene.asked
    await scene.look()
    assert scene.asked == asked


@pytest.mark.parametrize("silent", ["broker", "quarantine"])
async def test_a_broker_that_does_not_answer_may_have_something_alone(silent: str) -> None:
    scene = Scene()
    scene.reinstate()
    kept = scene.kept
    scene.is_broker_up, scene.kept = silent != "broker", None if silent == "quarantine" else kept
    await scene.look()
    assert scene.final() == [False, False]
    scene.is_broker_up, scene.kept = True, kept
    await scene.look()
    assert scene.final() == [True, True]


async def test_the_active_site_gets_it_first_and_again_after_an_outage() -> None:
    scene = Scene()
    scene.reinstate()
    scene.is_active_up = False
    await scene.look()
    assert scene.final() == [False, False]
    scene.is_active_up = True
    await scene.look()
    assert scene.final() == [True, True]


async def test_the_active_site_settles_nothing() -> None:
    scene = Scene()
    scene.reinstate()
    await scene.look(active="a")
    assert (scene.asked, scene.final()) == (0, [False, False])


@pytest.mark.parametrize("truncated_in", [2, 3])
async def test_an_account_becomes_final_also_after_a_fence_was_given_back(truncated_in: int) -> None:
    scene = Scene()
    await scene.look()
    scene.reinstate(epoch=truncated_in)
    await scene.look(epoch=3)
    assert scene.final() == [True, True]
    assert LossAccount.from_json(scene.there[2]).found_records == 40


async def test_an_account_of_an_earlier_band_is_left_as_it_is() -> None:
    """After another failover the site has leaders of its own above that band."""
    scene = Scene()
    scene.reinstate()
    await scene.look(epoch=4, floor=2 * FLOOR)
    assert (scene.asked, scene.final()) == (0, [False, False])
