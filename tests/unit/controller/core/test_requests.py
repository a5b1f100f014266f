"""Clients' requests about topics: every refusal by its code, and the requests that are granted."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from msgspec import structs
from msgspec.structs import replace

from controller.core import commands as ask
from controller.core.decisions import TopicOutcome
from controller.core.link_claims import LinkClaim
from controller.core.producer_ids import ProducerIdsExhausted, next_block
from controller.core.state.facts import LeadershipChanged, PartitionMoved
from controller.core.state.partition_states import PartitionPhase
from runtime.invariants import InvariantBroken
from tests.support.memory.site_model import RULES, SiteModel, link_record, topic_request
from wire.control.cluster_pb2 import LinkPhase
from wire.znodes.cluster_znodes import ProducerIdBlock
from wire.znodes.topic_znodes import encode_topic


@pytest.fixture
def model() -> SiteModel:
    site = SiteModel()
    site.alive(1, 2, 3)
    site.take_over()
    return site


def create(model: SiteModel, request: ask.TopicRequest, *, is_validate_only: bool = False) -> TopicOutcome:
    return model.give(ask.CreateTopics(topics=(request,), is_validate_only=is_validate_only)).reply[0]


def grow(model: SiteModel, name: str, total: int, **more: Any) -> TopicOutcome:
    request = ask.GrowthRequest(name=name, total_count=total, **more)
    return model.give(ask.CreatePartitions(topics=(request,))).reply[0]


def test_a_repeated_request_whose_answer_was_lost_succeeds_and_changes_nothing(model: SiteModel) -> None:
    first = create(model, topic_request("t", 2))
    decision = model.give(ask.CreateTopics(topics=(topic_request("t", 2),)))
    assert decision.reply[0] == TopicOutcome(name="t", topic=model.cluster.topics["t"])
    assert (decision.facts, first.error, first.topic) == ((), ErrorCode.none, model.cluster.topics["t"])
    another = structs.replace(topic_request("t", 2), topic_id=b"another id......")
    assert create(model, another).error is ErrorCode.topic_already_exists
    model.give(ask.DeleteTopics(names=("t",)))
    if "t" in model.cluster.topics:
        assert create(model, topic_request("t", 2)).error is ErrorCode.topic_already_exists


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (topic_request(""), ErrorCode.invalid_topic_exception, "empty string"),
        (topic_request("."), ErrorCode.invalid_topic_exception, "'.' or '..'"),
        (topic_request(".."), ErrorCode.invalid_topic_exception, "'.' or '..'"),
        (topic_request("x" * 250), ErrorCode.invalid_topic_exception, "max allowed length 249"),
        (topic_request("a b"), ErrorCode.invalid_topic_exception, "ASCII alphanumerics"),
        (topic_request("a\n"), ErrorCode.invalid_topic_exception, "ASCII alphanumerics"),
        (topic_request("t", 0), ErrorCode.invalid_partitions, "0 new partitions; accepted are 1 to"),
        (topic_request("t", -2), ErrorCode.invalid_partitions, "-2 new partitions; accepted are 1 to"),
        (topic_request("t", 20_001), ErrorCode.policy_violation, "20001 new partitions; accepted are 1 to 20000"),
        (topic_request("t", 0, 0), ErrorCode.invalid_replication_factor, "larger than 0"),
        (topic_request("t", 1, 0), ErrorCode.invalid_replication_factor, "larger than 0"),
        (topic_request("t", 1, 4), ErrorCode.invalid_replication_factor, "larger than available brokers: 3"),
        (topic_request("t", configs={"nonsense": "1"}), ErrorCode.invalid_config, "nonsense"),
        (topic_request("t", configs={"retention.ms": "x"}), ErrorCode.invalid_config, "retention.ms"),
        (topic_request("t", 1, -1, assignments=((0, (1,)),)), ErrorCode.invalid_request, "Both numPartitions"),
        (topic_request("t", -1, -1, assignments=((1, (1,)),)), ErrorCode.invalid_replica_assignment, "in a row"),
        (topic_request("t", -1, -1, assignments=((0, (1, 1)),)), ErrorCode.invalid_replica_assignment, "twice"),
        (topic_request("t", -1, -1, assignments=((0, ()),)), ErrorCode.invalid_replica_assignment, "no replicas"),
        (topic_request("t", -1, -1, assignments=((0, (9,)),)), ErrorCode.invalid_replica_assignment, "not alive"),
        (
            topic_request("t", -1, -1, assignments=((0, (1,)), (1, (1, 2)))),
            ErrorCode.invalid_replica_assignment,
            "where 1 are needed",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    model: SiteModel, request_: ask.TopicRequest, error: ErrorCode, words: str
) -> None:
    outcome = create(model, request_)
    assert outcome.error is error
    assert words in outcome.message
    assert not model.topics


def test_a_topic_that_fits_into_no_znode_is_refused(model: SiteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one would end the controller's connection to ZooKeeper, and its role with it."""
    create(model, topic_request("t", 10))
    size = len(encode_topic(model.topics["t"].stored()))
    monkeypatch.setattr("controller.core.topics.topic_checks.NODE_BYTES_MAX", size)
    outcomes = [create(model, topic_request("u", 20)), grow(model, "t", 11)]
    assert {outcome.error for outcome in outcomes} == {ErrorCode.invalid_partitions}
    assert all(f"ZooKeeper keeps at most {size}" in outcome.message for outcome in outcomes)
    assert create(model, topic_request("v", 10)).error is ErrorCode.none
    assert {name: len(topic.assignment) for name, topic in model.topics.items()} == {"t": 10, "v": 10}


def test_the_longest_name_and_a_manual_assignment_are_granted(model: SiteModel) -> None:
    outcome = create(model, topic_request("x" * 249, -1, -1, assignments=((1, (3, 1)), (0, (2, 3)))))
    assert outcome.topic is not None
    assert outcome.topic.assignment == {0: (2, 3), 1: (3, 1)}


def test_defaults_fill_in_for_minus_one() -> None:
    site = SiteModel(replace(RULES, default_partition_count=5, default_replication_factor=2))
    site.alive(1, 2)
    site.take_over()
    outcome = create(site, topic_request("t", -1, -1))
    assert outcome.topic is not None
    assert (len(outcome.topic.assignment), outcome.topic.replication_factor) == (5, 2)


def test_a_site_without_replication_refuses_more_than_one_replica() -> None:
    site = SiteModel(replace(RULES, replication_factor_max=1))
    site.alive(1, 2)
    site.take_over()
    outcome = create(site, topic_request("t", 1, 2))
    assert (outcome.error, "this site supports: 1" in outcome.message) == (ErrorCode.invalid_replication_factor, True)
    by_hand = create(site, topic_request("t", -1, -1, assignments=((0, (1, 2)),)))
    assert by_hand.error is ErrorCode.invalid_replication_factor


def test_without_brokers_nothing_is_created() -> None:
    site = SiteModel()
    site.take_over()
    assert create(site, topic_request("t")).error is ErrorCode.invalid_replication_factor


def test_topics_of_one_request_stand_for_themselves_and_repeated_ones_fall(model: SiteModel) -> None:
    names = ("good", "bad name", "twice", "twice")
    reply = model.give(ask.CreateTopics(topics=tuple(topic_request(name) for name in names))).reply
    assert [outcome.error for outcome in reply] == [
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    assert set(model.topics) == {"good"}


def test_validate_only_answers_and_changes_nothing(model: SiteModel) -> None:
    outcome = create(model, topic_request("t", 3), is_validate_only=True)
    assert (outcome.error, outcome.topic is not None) == (ErrorCode.none, True)
    create(model, topic_request("u"))
    model.give(ask.CreatePartitions(topics=(ask.GrowthRequest(name="u", total_count=2),), is_validate_only=True))
    change = ask.ConfigChange(name="u", set_configs={"retention.ms": "1"})
    model.give(ask.AlterTopicConfigs(changes=(change,), is_validate_only=True))
    assert set(model.topics) == {"u"}
    assert (len(model.topics["u"].assignment), model.topics["u"].configs) == (1, {})


def test_growth_is_refused_where_it_is_none(model: SiteModel) -> None:
    create(model, topic_request("t", 3))
    create(model, topic_request("__consumer_offsets", 3))
    assert grow(model, "nowhere", 5).error is ErrorCode.unknown_topic_or_partition
    assert grow(model, "t", 3).error is ErrorCode.invalid_partitions
    assert "partitions=3; accepted is more than the 3 that topic t has" in grow(model, "t", 3).message
    assert grow(model, "t", 2).error is ErrorCode.invalid_partitions
    assert grow(model, "__consumer_offsets", 9).error is ErrorCode.invalid_partitions
    assert grow(model, "t", 5, assignments=((1,),)).error is ErrorCode.invalid_replica_assignment
    assert grow(model, "t", 4, assignments=((1, 2),)).error is ErrorCode.invalid_replica_assignment


def test_growth_keeps_the_old_partitions_and_places_the_new_ones_on_idle_brokers(model: SiteModel) -> None:
    create(model, topic_request("t", -1, -1, assignments=((0, (1,)), (1, (1,)))))
    assert grow(model, "t", 4).error is ErrorCode.none
    assert model.topics["t"].assignment == {0: (1,), 1: (1,), 2: (2,), 3: (3,)}
    assert grow(model, "t", 5, assignments=((1,),)).error is ErrorCode.none
    assert model.topics["t"].assignment[4] == (1,)


def test_configs_are_merged_removed_or_replaced(model: SiteModel) -> None:
    create(model, topic_request("t", configs={"retention.ms": "1", "segment.bytes": "100"}))

    def alter(**fields: Any) -> ErrorCode:
        return model.give(ask.AlterTopicConfigs(changes=(ask.ConfigChange(name="t", **fields),))).reply[0].error

    assert alter(set_configs={"retention.ms": "2"}, remove=("segment.bytes",)) is ErrorCode.none
    assert model.topics["t"].configs == {"retention.ms": "2"}
    assert alter(set_configs={"cleanup.policy": "compact"}, replaces_all=True) is ErrorCode.none
    assert model.topics["t"].configs == {"cleanup.policy": "compact"}
    assert alter(set_configs={"cleanup.policy": "shred"}) is ErrorCode.invalid_config
    unknown = ask.ConfigChange(name="nowhere")
    assert model.give(ask.AlterTopicConfigs(changes=(unknown,))).reply[0].error is ErrorCode.unknown_topic_or_partition


def test_lists_that_two_brokers_change_at_the_same_time_keep_both_changes(model: SiteModel) -> None:
    create(model, topic_request("t"))

    def alter(items: str, *, is_removal: bool = False) -> str:
        one = ask.ListChange(
            name="leader.replication.throttled.replicas",
            items=(items,),
            inherited="",
            is_removal=is_removal,
        )
        change = ask.ConfigChange(name="t", lists=(one,))
        assert model.give(ask.AlterTopicConfigs(changes=(change,))).reply[0].error is ErrorCode.none
        return model.topics["t"].configs[one.name]

    assert alter("0:1") == "0:1"
    assert alter("1:1") == "0:1,1:1"  # of a broker that does not know of the first change
    assert alter("1:1") == "0:1,1:1"
    assert alter("0:1", is_removal=True) == "1:1"


def test_a_list_without_an_override_begins_with_the_inherited_list(model: SiteModel) -> None:
    create(model, topic_request("t"))
    one = ask.ListChange(name="cleanup.policy", items=("compact",), inherited="delete")
    model.give(ask.AlterTopicConfigs(changes=(ask.ConfigChange(name="t", lists=(one,)),)))
    assert model.topics["t"].configs == {"cleanup.policy": "delete,compact"}


def test_unchanged_configs_are_neither_stored_nor_sent(model: SiteModel) -> None:
    create(model, topic_request("t", configs={"retention.ms": "1"}))
    change = ask.ConfigChange(name="t", set_configs={"retention.ms": "1"})
    decision = model.give(ask.AlterTopicConfigs(changes=(change,)))
    assert (decision.facts, decision.effects) == ((), ())


def test_deletion_is_refused_for_unknown_names_and_ids_and_where_it_is_disabled(model: SiteModel) -> None:
    reply = model.give(ask.DeleteTopics(names=("nowhere",), topic_ids=(bytes(16),))).reply
    assert {outcome.error for outcome in reply} == {ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}
    site = SiteModel(replace(RULES, may_delete_topics=False))
    site.alive(1)
    site.take_over()
    create(site, topic_request("t"))
    outcome = site.give(ask.DeleteTopics(names=("t",))).reply[0]
    assert outcome.error is ErrorCode.topic_deletion_disabled
    site.give(ask.DeletionsMarked(topics=("t",)))
    assert set(site.topics) == {"t"}


def test_a_second_wish_to_delete_joins_the_first(model: SiteModel) -> None:
    create(model, topic_request("t"))
    model.give(ask.DeleteTopics(names=("t",)))
    again = model.give(ask.DeleteTopics(names=("t",)))
    assert again.reply[0].error is ErrorCode.none
    assert not again.facts


def test_answers_of_an_earlier_registration_count_for_nothing(model: SiteModel) -> None:
    create(model, topic_request("t"))
    topic = model.cluster.topics["t"]
    node = topic.assignment[0][0]
    model.give(ask.DeleteTopics(names=("t",)))
    epoch = model.brokers[node].epoch
    stale = ask.DeletionsAnswered(node_id=node, broker_epoch=epoch - 1, topic_ids=(topic.topic_id,))
    assert not model.give(stale).facts
    model.give(structs.replace(stale, broker_epoch=epoch))
    assert not model.topics


@pytest.mark.parametrize(
    ("link", "claim", "is_granted"),
    [
        (link_record(active="a"), LinkClaim(), True),
        (link_record(active="b"), LinkClaim(), False),
        (link_record(active="a", phase=LinkPhase.FENCED), LinkClaim(), False),
        (link_record(active="b", epoch=4), LinkClaim(link="b-a", epoch=4), True),
        (link_record(active="b", epoch=4, phase=LinkPhase.FENCED), LinkClaim(link="b-a", epoch=4), True),
        (link_record(active="b", epoch=4), LinkClaim(link="b-a", epoch=3), False),
        (link_record(active="a", epoch=4), LinkClaim(link="b-a", epoch=4), False),
        (link_record(active="b", topic_blacklist=["orders.x.*"]), LinkClaim(link="b-a", epoch=1), False),
        (link_record(active="b", topic_blacklist=["orders.x.*"]), LinkClaim(), True),
    ],
)
def test_a_linked_topic_is_changed_by_whom_the_link_allows(link: Any, claim: LinkClaim, is_granted: bool) -> None:
    site = SiteModel()
    site.alive(1)
    site.take_over()
    create(site, topic_request("orders.x"))
    site.give(ask.LinksListed(links={"b-a": link}))
    expected = ErrorCode.none if is_granted else ErrorCode.policy_violation
    assert create(site, topic_request("orders.x2", claim=claim)).error is expected
    assert grow(site, "orders.x", 2, claim=claim).error is expected
    change = ask.ConfigChange(name="orders.x", set_configs={"retention.ms": "9"}, claim=claim)
    assert site.give(ask.AlterTopicConfigs(changes=(change,))).reply[0].error is expected
    assert site.give(ask.DeleteTopics(names=("orders.x",), claim=claim)).reply[0].error is expected


def test_an_illegal_fact_breaks_with_the_story(model: SiteModel) -> None:
    create(model, topic_request("t"))
    assert model.machine is not None
    partition = next(model.cluster.topics["t"].partitions())
    with pytest.raises(InvariantBroken, match=r"(?s)may not move.*create topics 't'"):
        model.machine.apply([PartitionMoved(partition=partition, phase=PartitionPhase.NEW)])
    stale = model.cluster.leaderships[partition]
    with pytest.raises(InvariantBroken, match="does not follow"):
        model.machine.apply([LeadershipChanged(partition=partition, leadership=stale)])


def test_decide_changes_nothing(model: SiteModel) -> None:
    assert model.machine is not None
    before = model.cluster.copy()
    decision = model.machine.decide(ask.CreateTopics(topics=(topic_request("t", 5, 3),)))
    assert decision.facts
    assert model.cluster == before


def test_a_cluster_that_was_read_stays_as_it_was_when_more_is_applied(model: SiteModel) -> None:
    create(model, topic_request("t", 5, 3))
    seen, before = model.cluster, model.cluster.copy()
    partition = next(seen.topics["t"].partitions())
    model.give(ask.DeleteTopics(names=("t",)))
    assert model.cluster.is_deleting("t")
    assert seen == before
    assert model.machine is not None
    model.machine.apply([PartitionMoved(partition=partition, phase=PartitionPhase.OFFLINE)])
    assert model.cluster.revision > seen.revision
    assert seen == before


def test_a_decision_that_was_not_applied_leaves_no_trace_in_what_is_applied_later(model: SiteModel) -> None:
    create(model, topic_request("t"))
    assert model.machine is not None
    model.machine.decide(ask.DeleteTopics(names=("t",)))
    model.machine.apply([])
    assert not model.cluster.is_deleting("t")


def test_producer_id_blocks_follow_each_other_within_the_range() -> None:
    first = next_block(None, broker_id=1, range_start=1 << 40, range_size=1 << 40)
    assert (first.first_producer_id, first.last_producer_id) == (1 << 40, (1 << 40) + 999)
    second = next_block(first, broker_id=2, range_start=1 << 40, range_size=1 << 40)
    assert second.first_producer_id == first.last_producer_id + 1
    used_up = ProducerIdBlock(broker_id=1, first_producer_id=0, last_producer_id=(1 << 41) - 500)
    with pytest.raises(ProducerIdsExhausted):
        next_block(used_up, broker_id=1, range_start=1 << 40, range_size=1 << 40)


def test_configs_that_zookeeper_could_not_keep_are_refused() -> None:
    """A request that ZooKeeper does not take ends the connection, and the controller's tenure."""
    model = SiteModel()
    model.alive(1)
    model.take_over()
    listed = ",".join(f"{index}:1" for index in range(150_000))
    too_long = {"leader.replication.throttled.replicas": listed}
    created = model.give(ask.CreateTopics(topics=(topic_request("wide", configs=too_long), topic_request("orders"))))
    assert [outcome.error for outcome in created.reply] == [ErrorCode.invalid_config, ErrorCode.none]
    change = ask.ConfigChange(name="orders", set_configs=too_long)
    altered = model.give(ask.AlterTopicConfigs(changes=(change,)))
    assert [outcome.error for outcome in altered.reply] == [ErrorCode.invalid_config]
    assert model.cluster.topics["orders"].configs == {}
