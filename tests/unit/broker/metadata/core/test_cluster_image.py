"""Images from control batches, link roles as ARCHITECTURE.md's table has them, merged metadata."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.access import mirror_error, passive_link_for_new_topic, read_error, write_error
from broker.metadata.core.cluster_image import ClusterImage, LinkRole, group_partition
from broker.metadata.core.image_difference import difference
from broker.metadata.core.image_updates import (
    OtherCluster,
    StaleControllerEpoch,
    apply_batch,
    check_fence,
    confirm_link,
    lacks_topics,
    with_peer_view,
    without_departed,
)
from tests.support.memory.control_batches import OWN, PEER, batch, image, link, topic
from wire.control.broker_pb2 import ControlBatch, DeletedTopic, EpochRaise, RemovedReplicas
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.ids import NO_EPOCH, NO_NODE
from wire.rules.links import InvalidPattern, stand_in


def test_a_full_image_forgets_what_it_does_not_name() -> None:
    before = image(topic("t1"), topic("t2", topic_id=b"j" * 16))
    after = apply_batch(before, batch(topic("t2", topic_id=b"j" * 16)))
    assert list(after.topics) == ["t2"]
    assert [deleted.name for deleted in difference(before, after).deleted] == ["t1"]


def test_a_change_merges_partitions_by_index() -> None:
    before = image(topic("t", count=2))
    grown = TopicInfo(
        name="t", topic_id=b"i" * 16, partitions=[PartitionState(partition=2, leader=OWN, replicas=[OWN])]
    )
    after = apply_batch(before, batch(grown, is_full=False))
    assert list(after.topics["t"].partitions) == [0, 1, 2]


def test_a_raise_lifts_lower_leader_epochs_and_leaves_everything_else() -> None:
    states = [
        PartitionState(partition=index, leader=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=[OWN])
        for index, (leader, epoch) in enumerate([(OWN, 3), (NO_NODE, 4), (OWN, 12), (NO_NODE, NO_EPOCH)])
    ]
    before = image(TopicInfo(name="t", topic_id=b"i" * 16, partitions=states), topic("u", topic_id=b"j" * 16))
    raised = batch(is_full=False, epoch_raises=[EpochRaise(floor=10, topics=["t", "gone"])])
    after = apply_batch(before, raised)
    found = after.topics["t"].partitions.values()
    assert [one.leader_epoch for one in found] == [10, 10, 12, NO_EPOCH]
    assert [one.partition_epoch for one in found] == [3, 4, 12, NO_EPOCH]
    assert [one.leader for one in found] == [OWN, NO_NODE, OWN, NO_NODE]
    assert after.topics["u"] is before.topics["u"]
    assert apply_batch(after, raised).topics["t"] is after.topics["t"]


def test_a_raise_comes_after_the_states_in_the_same_batch() -> None:
    older = TopicInfo(
        name="t", topic_id=b"i" * 16, partitions=[PartitionState(partition=0, leader=PEER, leader_epoch=5)]
    )
    after = apply_batch(
        image(topic("t")), batch(older, is_full=False, epoch_raises=[EpochRaise(floor=9, topics=["t"])])
    )
    assert (after.topics["t"].partitions[0].leader, after.topics["t"].partitions[0].leader_epoch) == (PEER, 9)


def test_a_topic_with_another_id_replaces_the_old_one() -> None:
    before = image(topic("t", count=3))
    after = apply_batch(before, batch(topic("t", topic_id=b"n" * 16), is_full=False))
    change = difference(before, after)
    assert [(deleted.name, deleted.topic_id) for deleted in change.deleted] == [("t", b"i" * 16)]
    assert len(change.changed[0].partitions) == 1


def test_deleting_an_older_topic_of_the_same_name_leaves_the_newer_one() -> None:
    before = image(topic("t", topic_id=b"n" * 16))
    after = apply_batch(before, batch(is_full=False, deleted_topics=[DeletedTopic(name="t", topic_id=b"i" * 16)]))
    assert "t" in after.topics


def test_an_image_knows_the_deletions_of_its_own_batch_alone() -> None:
    named = apply_batch(image(topic("t")), batch(deleted_topics=[DeletedTopic(name="t", topic_id=b"i" * 16)]))
    assert (named.deleted_ids, apply_batch(named, batch()).deleted_ids) == ({b"i" * 16}, frozenset())


def test_a_topic_that_did_not_change_stays_the_same_object() -> None:
    before = image(topic("t1"), topic("t2", topic_id=b"j" * 16))
    after = apply_batch(before, batch(topic("t1"), topic("t2", topic_id=b"j" * 16, epoch=1)))
    assert after.topics["t1"] is before.topics["t1"]
    assert [changed.name for changed in difference(before, after).changed] == ["t2"]


def test_an_older_controller_is_refused() -> None:
    with pytest.raises(StaleControllerEpoch):
        check_fence(apply_batch(image(), batch(controller_epoch=5)), batch(controller_epoch=4), broker_epoch=7)


def test_a_controller_of_another_cluster_is_refused() -> None:
    with pytest.raises(OtherCluster):
        check_fence(image(), batch(cluster_id="other", controller_epoch=9), broker_epoch=7)
    check_fence(ClusterImage(site="a", node_id=OWN), batch(cluster_id="other"), broker_epoch=7)


def test_an_image_has_the_removed_replicas_that_the_last_batch_names() -> None:
    named = RemovedReplicas(topic_id=b"i" * 16, partitions=[0, 2], registrations_zxid=7)
    before = apply_batch(image(), batch(topic("t1"), removed_replicas=[named]))
    assert before.removed_replicas == {(b"i" * 16, 0): 7, (b"i" * 16, 2): 7}
    assert apply_batch(before, batch(topic("t1"))).removed_replicas == {}


def test_a_batch_for_an_older_registration_is_refused() -> None:
    with pytest.raises(StaleControllerEpoch):
        check_fence(image(), batch(broker_epoch=6), broker_epoch=7)
    check_fence(image(), batch(broker_epoch=0), broker_epoch=7)


def test_a_broker_that_has_not_registered_yet_takes_nothing() -> None:
    """The batch is for the process before this one; the new process must not resume its
    leaderships.
    """
    with pytest.raises(StaleControllerEpoch):
        check_fence(image(), batch(broker_epoch=6), broker_epoch=0)


ROLES = [
    ("a", link(), 1, LinkRole.ACTIVE, ErrorCode.none, ErrorCode.none),
    ("a", link(), 0, LinkRole.UNCONFIRMED, ErrorCode.not_leader_or_follower, ErrorCode.none),
    ("a", link(phase=LinkPhase.FENCED), 1, LinkRole.FENCED, ErrorCode.not_leader_or_follower, ErrorCode.none),
    ("b", link(), 1, LinkRole.PASSIVE, ErrorCode.not_leader_or_follower, ErrorCode.not_leader_or_follower),
    ("b", link(routed=False), 1, LinkRole.PASSIVE, ErrorCode.policy_violation, ErrorCode.none),
]


@pytest.mark.parametrize(("site", "record", "confirmed", "role", "writing", "reading"), ROLES)
def test_roles_decide_what_clients_may_do(
    site: str, record: LinkRecord, confirmed: int, role: LinkRole, writing: ErrorCode, reading: ErrorCode
) -> None:
    found = image(topic("orders"), site=site, links=[record])
    found = confirm_link(found, "a-b", confirmed) or found
    assert found.role_of_topic("orders") is role
    assert write_error(found, "orders") is writing
    assert read_error(found, "orders", replica_id=-1) is reading
    assert read_error(found, "orders", replica_id=-2) is ErrorCode.none


def test_topics_outside_of_the_link_are_local() -> None:
    found = image(site="b", links=[link()])
    for name in ("orders-home", "other", "__consumer_offsets"):
        assert found.role_of_topic(name) is LinkRole.LOCAL
        assert write_error(found, name) is ErrorCode.none
    assert passive_link_for_new_topic(found, "orders-new") is not None
    assert passive_link_for_new_topic(found, "other") is None


def test_a_link_that_is_back_at_a_former_epoch_must_be_confirmed_again() -> None:
    """ZooKeeper may have older data: the peer was promoted since it confirmed."""
    known = confirm_link(image(links=[link(epoch=1)]), "a-b", 1)
    assert known is not None
    assert known.role_of_topic("orders") is LinkRole.ACTIVE
    known = apply_batch(known, batch(links=[link(epoch=2, active="b")]))
    known = apply_batch(known, batch(links=[link(epoch=1)]))
    assert known.role_of_topic("orders") is LinkRole.UNCONFIRMED


@pytest.mark.parametrize("seen", [[[]], []], ids=["deleted and made again", "made again before the next look"])
def test_a_link_that_was_made_again_must_be_confirmed_again(seen: list[list[LinkRecord]]) -> None:
    """It begins with the same epoch as the deleted one."""
    first, second = link(epoch=1), link(epoch=1)
    first.made_at_ms, second.made_at_ms = 1_000, 2_000
    known = confirm_link(image(links=[first]), "a-b", 1)
    assert known is not None
    for links in [*seen, [second]]:
        known = apply_batch(known, batch(links=links))
    assert known.role_of_topic("orders") is LinkRole.UNCONFIRMED


def test_a_confirmation_counts_for_its_epoch_only() -> None:
    found = confirm_link(image(links=[link(epoch=1)]), "a-b", 1)
    assert found is not None
    assert found.role_of_topic("orders") is LinkRole.ACTIVE
    raised = apply_batch(found, batch(links=[link(epoch=2)]))
    assert raised.role_of_topic("orders") is LinkRole.UNCONFIRMED
    assert confirm_link(raised, "a-b", 1) is None
    assert confirm_link(raised, "unknown", 1) is None


def test_a_changed_role_counts_as_a_changed_topic() -> None:
    before = image(topic("orders"), topic("other", topic_id=b"j" * 16), links=[link()])
    after = confirm_link(before, "a-b", 1)
    assert after is not None
    assert [changed.name for changed in difference(before, after).changed] == ["orders"]


MIRRORS = [
    ("b", "orders", "a-b", 1, ErrorCode.none),
    ("b", "orders", "a-b", 0, ErrorCode.fenced_leader_epoch),
    ("b", "orders", "a-b", 2, ErrorCode.unknown_leader_epoch),
    ("b", "orders", "x", 1, ErrorCode.unknown_leader_epoch),
    ("b", "other", "a-b", 1, ErrorCode.not_leader_or_follower),
    ("a", "orders", "a-b", 1, ErrorCode.not_leader_or_follower),
]


@pytest.mark.parametrize(("site", "name", "link_name", "epoch", "expected"), MIRRORS)
def test_a_mirror_may_append_at_the_passive_site_under_the_same_epoch(
    site: str, name: str, link_name: str, epoch: int, expected: ErrorCode
) -> None:
    found = image(topic(name), site=site, links=[link()])
    assert mirror_error(found, name, link_name=link_name, link_epoch=epoch) is expected


# Absolute values of Java's String.hashCode; the last one is the well-known string with the hash
# -2^31, which has none.
JAVA_HASHES = [
    ("", 0),
    ("a", 97),
    ("ab", 97 * 31 + 98),
    ("\u00fc", 0xFC),
    ("Group-1", 1_958_080_579),
    ("test-consumer-group", 1_793_216_381),
    ("polygenelubricants", 0),
]


@pytest.mark.parametrize(("name", "code"), JAVA_HASHES)
def test_groups_are_placed_by_javas_string_hash(name: str, code: int) -> None:
    assert group_partition(name, 50) == code % 50


def brokers_listed(former: ClusterImage, *nodes: int) -> ClusterImage:
    listed = ControlBatch(
        controller_epoch=1, brokers=[BrokerInfo(node_id=node, broker_epoch=node * 10) for node in nodes]
    )
    return apply_batch(former, listed)


def test_a_broker_that_went_is_remembered_until_it_is_forgotten_or_back() -> None:
    gone = brokers_listed(brokers_listed(image(), OWN, 1002, 1003), OWN, 1003)
    assert set(gone.departed) == {1002}
    both = brokers_listed(gone, OWN)
    assert set(both.departed) == {1002, 1003}
    assert set(brokers_listed(both, OWN, 1002).departed) == {1003}
    forgotten = without_departed(both)
    assert (dict(forgotten.departed), forgotten.version) == ({}, both.version + 1)
    assert without_departed(forgotten) is forgotten


def test_a_list_of_brokers_that_says_nothing_new_is_the_same_list() -> None:
    first = brokers_listed(image(), OWN, 1002)
    assert brokers_listed(first, 1002, OWN).brokers is first.brokers


def test_a_view_without_topics_keeps_those_of_the_same_version() -> None:
    before = image(links=[link()])
    brief = SiteView(site="b", version=2, controller_id=PEER, topics_version=5, has_known_topics=True)
    assert lacks_topics(before, brief)
    after = with_peer_view(before, SiteView(site="b", version=1, topics=[topic("t")], topics_version=5))
    assert not lacks_topics(after, brief)
    kept = with_peer_view(after, brief)
    assert kept.topics_of_peer("b").get("t") is after.topics_of_peer("b").get("t") is not None
    assert kept.peers["b"].controller_id == PEER
    assert lacks_topics(kept, SiteView(site="b", version=3, topics_version=6, has_known_topics=True))


def test_a_topic_is_found_by_its_id_at_the_site_that_clients_are_led_to() -> None:
    ours, theirs = b"o" * 16, b"t" * 16
    passive = image(topic("orders", topic_id=ours), topic("home"), site="b", links=[link()])
    both = with_peer_view(passive, SiteView(site="a", version=1, topics=[topic("orders", leader=PEER, topic_id=ours)]))
    found = both.routed_topic_with_id(ours)
    assert found is not None
    assert (found.is_own_site, found.topic.partitions[0].leader) == (False, PEER)
    made_again = [topic("orders", leader=PEER, topic_id=theirs), topic("orders-new", leader=PEER, topic_id=b"n" * 16)]
    other = with_peer_view(both, SiteView(site="a", version=2, topics=made_again))
    assert other.routed_topic_with_id(ours) is None  # the name is another topic's by now
    assert [getattr(other.routed_topic_with_id(one), "topic", None) for one in (theirs, b"n" * 16, b"u" * 16)] == [
        other.peer_topics["a"].get("orders"),
        other.peer_topics["a"].get("orders-new"),
        None,
    ]
    own = other.routed_topic_with_id(b"i" * 16)
    assert own is not None
    assert own.is_own_site


def test_a_topic_in_quarantine_stays_as_it_was_until_an_image_says_otherwise() -> None:
    before = image(topic("orders", count=2), topic("gone"))
    after = apply_batch(before, batch(quarantined_topics=["orders", "never-seen"]))
    assert after.topics == {"orders": before.topics["orders"]}
    assert after.quarantined == {"orders", "never-seen"}
    assert [deleted.name for deleted in difference(before, after).deleted] == ["gone"]
    change = apply_batch(after, batch(topic("new"), is_full=False))
    assert change.quarantined == after.quarantined
    mended = apply_batch(change, batch(topic("orders", epoch=5)))
    assert not mended.quarantined
    assert mended.topics["orders"].partitions.keys() == {0}


def test_a_link_that_cannot_be_read_stays_as_it_was_and_a_new_broker_writes_to_nothing_that_it_may_carry() -> None:
    known = image(topic("orders"), topic("home"), links=[link(active="a")])
    unreadable = batch(topic("orders"), topic("home"), links=[stand_in("a-b", "a")])
    assert apply_batch(known, unreadable).links == known.links
    fresh = apply_batch(ClusterImage(site="a", node_id=OWN), unreadable)
    for name in ("orders", "home"):
        assert fresh.role_of_topic(name) is LinkRole.PASSIVE
        assert write_error(fresh, name) is not ErrorCode.none
        assert read_error(fresh, name, replica_id=-1) is ErrorCode.none
    assert fresh.role_of_topic("__consumer_offsets") is LinkRole.LOCAL
    mended = apply_batch(fresh, batch(topic("orders"), topic("home"), links=[link(active="a")]))
    assert mended.role_of_topic("home") is LinkRole.LOCAL


def test_a_stand_in_carries_only_what_no_other_link_carries() -> None:
    both = image(topic("orders"), topic("home"), links=[stand_in("a", "a"), link(active="a")])
    assert both.role_of_topic("orders") is LinkRole.UNCONFIRMED
    assert both.role_of_topic("home") is LinkRole.PASSIVE


def test_a_batch_with_a_link_that_matches_nothing_is_refused_whole() -> None:
    """Each request for a topic is matched with the filters of links."""
    with pytest.raises(InvalidPattern, match=r"pattern '\*\*' is not a regular expression"):
        apply_batch(image(), batch(links=[LinkRecord(name="a-b", topic_whitelist=["**"])]))
