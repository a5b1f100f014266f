"""What an account of thousands of partitions costs while writers wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.failover.accounting import Accounting
from dr.failover.actions import SiteActions
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.steps import Decision, FailoverPolicy, Step
from dr.failover.report import FailoverTimeouts
from dr.sites.core.loss import LossAccount, PartitionLoss
from runtime.clock import SystemClock
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import UNKNOWN, TopicPartition

RECORD = LinkRecord(name="a-b", epoch=2, source_site="a", target_site="b", active_site="b")


def loss(partition: int, kept_below: int, *, is_protected: bool = True, returning_records: int = 0) -> PartitionLoss:
    return PartitionLoss(
        topic="t",
        partition=partition,
        kept_below=kept_below,
        source_end=9,
        is_source_end_exact=True,
        known_lost_records=0,
        last_contact_ms=0,
        is_protected=is_protected,
        returning_records=returning_records,
    )


ACCOUNT = LossAccount(
    link="a-b",
    epoch=2,
    from_site="a",
    to_site="b",
    accounted_at_ms=1,
    partitions=(loss(0, 5), loss(1, 5, returning_records=2), loss(2, UNKNOWN), loss(3, 0, is_protected=False)),
)


class Site:
    """A site that stores what it is given."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.accounts: list[str] = []

    async def adopt_link(self, record: LinkRecord, *, account: str = "", **_: Any) -> Any:
        self.accounts += [account] if account else []
        return SimpleNamespace(record=record, has_leaders=True)

    async def record_failover(self, _: str, *, document: str, **__: Any) -> None:
        self.accounts.append(document)


async def test_both_sites_get_the_account_in_one_form_that_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LossAccount] = []
    to_json = LossAccount.to_json

    def noting(account: LossAccount) -> str:
        made.append(account)
        return to_json(account)

    monkeypatch.setattr(LossAccount, "to_json", noting)
    monkeypatch.setattr(Accounting, "before_the_raise", lambda *_, **__: ACCOUNT)
    target: Any = Site("b")
    source: Any = Site("a")
    absent: Any = None
    actions = SiteActions(
        link="a-b",
        target=target,
        source=source,
        observer=absent,
        members=absent,
        playbook=FailoverPlaybook(to_site="b", policy=FailoverPolicy()),
        policy=FailoverPolicy(),
        timeouts=FailoverTimeouts(),
        clock=SystemClock(),
    )
    for step in (Step.RAISE, Step.NOTIFY):
        assert await actions.carry_out(Decision(step=step, reason="", record=RECORD), absent) == (RECORD, "")
    assert (target.accounts, source.accounts, made) == ([to_json(ACCOUNT)], [to_json(ACCOUNT)], [ACCOUNT])


def test_the_ends_that_a_promotion_kept_are_listed_when_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[TopicPartition] = []

    def key(topic: str, partition: int) -> TopicPartition:
        listed.append(TopicPartition(topic, partition))
        return listed[-1]

    monkeypatch.setattr("dr.sites.core.loss.TopicPartition", key)
    promotion = ACCOUNT.promotion
    assert (promotion.epoch, listed) == (2, [])
    assert promotion.kept_below == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    assert promotion.kept_below.get(TopicPartition("t", 2)) is None
    assert (len(promotion.kept_below), len(listed)) == (2, 2)
