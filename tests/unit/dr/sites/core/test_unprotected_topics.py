"""Topics that a standby does not have, or has as another one of that name, are named in the plan
and in the account.
"""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from dr.failover.core.assess import assess
from dr.failover.core.loss_counting import account
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.source_ends import SourceEnd
from dr.failover.core.steps import FailoverPolicy, Step, StepEnded
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.loss import LossAccount
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import unprotected_topics
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, PartitionState, TopicInfo
from wire.protocol.ids import TopicPartition
from wire.znodes.topic_znodes import TopicAssignment

LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    epoch=1,
    active_site="a",
    phase=LinkPhase.FENCED,
    topic_whitelist=[".*"],
)
ORDERS, LATE = TopicPartition("orders", 0), TopicPartition("late", 0)


def topic(name: str, number: int, partitions: int) -> TopicInfo:
    states = [PartitionState(partition=index) for index in range(partitions)]
    return TopicInfo(name=name, topic_id=UUID(int=number).bytes, partitions=states)


def copy(number: int, partitions: int) -> TopicAssignment:
    return TopicAssignment(topic_id=UUID(int=number).bytes, partitions=dict.fromkeys(range(partitions), (1,)))


PEER = [
    topic("orders", 7, 1),
    topic("late", 2, 2),
    topic("grown", 3, 3),
    topic("well", 4, 1),
    topic("__internal", 5, 1),
]
OWN = {"orders": copy(1, 1), "grown": copy(3, 1), "well": copy(4, 1), "only-here": copy(9, 1)}
UNPROTECTED = tuple(unprotected_topics(OWN, PEER, LINK, site="b"))


def position(end: int, *, epoch: int = 1, is_writable: bool = False) -> PartitionPosition:
    return PartitionPosition(
        leader_epoch=epoch, last_log_epoch=epoch, log_start_offset=0, log_end_offset=end, is_writable=is_writable
    )


def evidence() -> Evidence:
    """A fenced source with 5 records of the new `orders`; the target has 900 of the old one."""
    source = SiteEvidence(site="a", seen_at_ms=0, record=LINK, partitions={ORDERS: position(5)})
    target = SiteEvidence(
        site="b", seen_at_ms=0, record=LINK, partitions={ORDERS: position(900)}, unprotected=UNPROTECTED
    )
    return Evidence(link="a-b", target_site="b", target=target, source=source)


def test_topics_that_are_missing_older_or_smaller_at_the_standby_are_found() -> None:
    assert [(one.topic, one.partitions) for one in UNPROTECTED] == [
        ("grown", (1, 2)),
        ("late", (0, 1)),
        ("orders", (0,)),
    ]
    reasons = [one.reason for one in UNPROTECTED]
    assert "partitions 1, 2 of topic grown are not at b" in reasons[0]
    assert "topic late is not at b" in reasons[1]
    assert f"id {UUID(int=7)}" in reasons[2]
    assert f"id {UUID(int=1)}" in reasons[2]


def test_nothing_of_them_counts_as_kept_whatever_the_standby_has_under_their_names() -> None:
    ends = {ORDERS: SourceEnd(log_start_offset=0, end_offset=5, seen_at_ms=0, is_exact=True)}
    found = account(
        link="a-b",
        epoch=2,
        from_site="a",
        to_site="b",
        kept={ORDERS: 900},
        target={ORDERS: position(900)},
        source=ends,
        now_ms=0,
        unprotected=UNPROTECTED,
    )
    by_place = {(loss.topic, loss.partition): loss for loss in found.partitions}
    assert (by_place[ORDERS].kept_below, by_place[ORDERS].known_lost_records) == (0, 5)
    assert by_place[LATE].last_contact_ms == -1
    assert not found.is_exact
    assert LossAccount.from_json(found.to_json()) == found


def test_a_fenced_source_is_not_left_for_a_standby_that_lacks_its_topics_without_naming_them() -> None:
    playbook = FailoverPlaybook(to_site="b", policy=FailoverPolicy())
    playbook.observe(evidence(), 0)
    assert playbook.decide(evidence(), 0).step is Step.DRAIN
    playbook.apply(StepEnded(step=Step.DRAIN), 0)
    decision = playbook.decide(evidence(), 10_000_000)
    assert decision.step is Step.GIVE_BACK
    assert "5 records known at the active site are not at b" in decision.reason
    assert "topic late is not at b" in decision.reason


def test_the_plan_for_a_lost_source_names_them() -> None:
    seen = evidence()
    lost = Evidence(link="a-b", target_site="b", target=seen.target, source=None)
    planned = assess(lost, to_site="b", policy=FailoverPolicy(accepts_data_loss=True), now_ms=0)
    assert len(planned.unprotected) == 3
    assert planned.account is not None
    assert planned.account.unprotected == planned.unprotected


def test_a_source_that_another_link_made_passive_is_not_failed_away_from() -> None:
    """One site takes the topic's writes, and a failover of this link cannot fence that site."""
    seen = evidence()
    assert seen.source is not None
    deposed = replace(seen, source=replace(seen.source, deposed=("site a is passive for orders",)))
    for accepts in (False, True):
        policy = FailoverPolicy(accepts_data_loss=accepts)
        decision = FailoverPlaybook(to_site="b", policy=policy).decide(deposed, 0)
        assert decision.step is Step.GIVE_BACK  # it was fenced already
        assert "site a is passive for orders; promoting b would make two sites active" in decision.reason
