"""Images from control batches, link roles as ARCHITECTURE.md's table has them, merged metadata."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.records.leader_hints import leader_hint
from broker.metadata.core.access import mirror_error, passive_link_for_new_topic, read_error, write_error
from broker.metadata.core.cluster_image import ClusterImage, LinkRole, group_partition
from broker.metadata.core.image_difference import NO_CHANGE, difference
from broker.metadata.core.image_updates import (
    StaleControllerEpoch,
    apply_batch,
    check_fence,
    confirm_link,
    topic_image,
    with_peer_reports,
    with_peer_view,
    without_departed,
    without_old_reports,
)
from wire.control.broker_pb2 import ControlBatch, DeletedTopic
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol.messages.leader_hints import LeaderHint
from wire.rules.links import InvalidPattern, stand_in

OWN, PEER = 1001, 2001


def topic(name: str, *, count: int = 1, leader: int = OWN, epoch: int = 0, topic_id: bytes = b"i" * 16) -> TopicInfo:
    states = [
        PartitionState(partition=index, leader=leader, leader_epoch=epoch, replicas=[leader], isr=[leader])
        for index in range(count)
    ]
    return TopicInfo(name=name, topic_id=topic_id, partitions=states)


def link(
    *, epoch: int = 1, active: str = "a", phase: LinkPhase = LinkPhase.MIRRORING, routed: bool = True
) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        mode="exact",
        epoch=epoch,
        active_site=active,
        phase=phase,
        topic_whitelist=["orders.*"],
        topic_blacklist=["orders-home"],
        group_whitelist=["billing"],
        is_routed=routed,
    )


def batch(*topics: TopicInfo, links: list[LinkRecord] | None = None, **fields: object) -> ControlBatch:
    values: dict[str, object] = {"is_full": True, "controller_epoch": 1, "cluster_id": "c", **fields}
    return ControlBatch(brokers=[BrokerInfo(node_id=OWN)], topics=topics, links=links or [], **values)  # type: ignore[arg-type]


def image(*topics: TopicInfo, site: str = "a", links: list[LinkRecord] | None = None) -> ClusterImage:
    return apply_batch(ClusterImage(site=site, node_id=OWN), batch(*topics, links=links))


def peer_view(*topics: TopicInfo, coordinators: list[int] | None = None) -> SiteView:
    return SiteView(
        site="a", version=1, brokers=[BrokerInfo(node_id=PEER)], topics=topics, group_coordinators=coordinators or []
    )


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


def test_a_topic_that_did_not_change_stays_the_same_object() -> None:
    before = image(topic("t1"), topic("t2", topic_id=b"j" * 16))
    after = apply_batch(before, batch(topic("t1"), topic("t2", topic_id=b"j" * 16, epoch=1)))
    assert after.topics["t1"] is before.topics["t1"]
    assert [changed.name for changed in difference(before, after).changed] == ["t2"]


def test_an_older_controller_is_refused() -> None:
    with pytest.raises(StaleControllerEpoch):
        check_fence(apply_batch(image(), batch(controller_epoch=5)), batch(controller_epoch=4), broker_epoch=7)


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


def test_a_passive_site_shows_the_active_sites_leaders() -> None:
    found = with_peer_view(
        image(topic("orders"), site="b", links=[link()]), peer_view(topic("orders", leader=PEER, epoch=9))
    )
    routed = found.routed_topic("orders")
    assert routed is not None
    assert (routed.topic.partitions[0].leader, routed.topic.partitions[0].leader_epoch) == (PEER, 9)
    assert set(found.routed_brokers()) == {OWN, PEER}


def test_a_passive_site_names_no_leader_epoch_below_the_floor_of_the_link() -> None:
    """The view of the promoted site may be older than the link's record; clients ignore a leader of
    an epoch that is not newer than the one that they know.
    """
    promoted = link(epoch=2, active="b")
    promoted.leader_epoch_floor = 1 << 20
    own = image(topic("orders", count=2, epoch=7), links=[promoted])
    view = peer_view(topic("orders", count=2, leader=PEER, epoch=3))
    view.site = "b"
    before = with_peer_view(own, view)
    routed = before.routed_topic("orders")
    assert routed is not None
    assert [(one.leader, one.leader_epoch) for one in routed.topic.partitions.values()] == [(PEER, 1 << 20)] * 2
    assert leader_hint(before, "orders", 1) == LeaderHint(PEER, 1 << 20)
    newer = SiteView()
    newer.CopyFrom(view)
    newer.topics[0].partitions[1].leader_epoch = (1 << 20) + 1
    after = with_peer_view(before, newer).routed_topic("orders")
    assert after is not None
    assert [one.leader_epoch for one in after.topic.partitions.values()] == [1 << 20, (1 << 20) + 1]


def test_a_passive_site_without_a_view_of_its_peer_names_no_leader() -> None:
    routed = image(topic("orders"), site="b", links=[link()]).routed_topic("orders")
    assert routed is not None
    assert routed.topic.partitions[0].leader == -1


def test_a_copy_of_a_topic_that_the_active_site_does_not_have_is_no_topic_for_clients() -> None:
    found = with_peer_view(image(topic("orders"), site="b", links=[link()]), peer_view())
    assert found.routed_topic("orders") is None
    assert list(found.routed_topic_names()) == []
    assert found.routed_topic_with_id(b"i" * 16) is None
    assert "orders" in found.topics


def test_topics_are_found_by_their_ids_as_clients_must_see_them() -> None:
    known = image(topic("orders"), site="b", links=[link()])
    found = with_peer_view(known, peer_view(topic("orders", topic_id=b"n" * 16), topic("home", topic_id=b"h" * 16)))
    names = {topic_id: found.routed_topic_with_id(topic_id * 16) for topic_id in (b"i", b"n", b"h")}
    assert {key: routed and routed.topic.name for key, routed in names.items()} == {
        b"i": None,  # the copy of a topic that was made again there
        b"n": "orders",
        b"h": "home",
    }


def test_a_peers_report_changes_nothing_of_this_sites_own() -> None:
    before = with_peer_view(image(topic("own"), site="b", links=[link()]), peer_view())
    after = with_peer_reports(before, "a", [(topic_image(topic("orders", leader=PEER)), False)], at_ms=5)
    routed = after.routed_topic("orders")
    assert routed is not None
    assert (routed.is_own_site, routed.topic.partitions[0].leader) == (False, PEER)
    assert (after.version, difference(before, after)) == (before.version + 1, NO_CHANGE)
    assert without_old_reports(after, "a", before_ms=5) is after
    assert without_old_reports(after, "a", before_ms=6).routed_topic("orders") is None


def test_topics_that_only_the_active_site_has_yet_are_shown() -> None:
    found = with_peer_view(
        image(site="b", links=[link()]), peer_view(topic("orders-2", leader=PEER), topic("home", leader=PEER))
    )
    assert list(found.routed_topic_names()) == ["orders-2", "home"]
    home = found.routed_topic("home")
    assert home is not None
    assert (home.is_own_site, home.topic.partitions[0].leader) == (False, PEER)


def test_a_topic_that_no_link_carries_is_the_site_s_own_when_both_have_one() -> None:
    found = with_peer_view(image(topic("home"), site="b", links=[link()]), peer_view(topic("home", leader=PEER)))
    routed = found.routed_topic("home")
    assert routed is not None
    assert (routed.is_own_site, routed.topic.partitions[0].leader) == (True, OWN)


def test_topics_of_a_peer_are_not_shown_without_a_routed_link() -> None:
    found = with_peer_view(image(site="b", links=[link(routed=False)]), peer_view(topic("home", leader=PEER)))
    assert list(found.routed_topic_names()) == []


MAY_HAVE = [
    ("a", "orders", []),  # active here: the peer has nothing but copies
    ("b", "orders", ["a"]),
    ("a", "home", ["b"]),
    ("b", "home", ["a"]),
]


@pytest.mark.parametrize(("site", "name", "sites"), MAY_HAVE)
def test_peers_are_asked_about_topics_that_may_be_theirs(site: str, name: str, sites: list[str]) -> None:
    assert image(site=site, links=[link()]).sites_that_may_have(name) == sites
    assert image(site=site, links=[link(routed=False)]).sites_that_may_have(name) == []


def test_without_routing_a_passive_site_answers_for_itself() -> None:
    found = with_peer_view(
        image(topic("orders"), site="b", links=[link(routed=False)]), peer_view(topic("orders", leader=PEER))
    )
    routed = found.routed_topic("orders")
    assert routed is not None
    assert routed.topic.partitions[0].leader == OWN
    assert set(found.routed_brokers()) == {OWN}


def test_an_active_site_shows_its_own_leaders() -> None:
    found = image(topic("orders"), links=[link()])
    routed = found.routed_topic("orders")
    assert routed is not None
    assert routed.topic.partitions[0].leader == OWN


def test_groups_of_a_link_are_coordinated_at_the_active_site() -> None:
    found = with_peer_view(
        image(topic("__consumer_offsets", count=4), site="b", links=[link()]), peer_view(coordinators=[PEER] * 8)
    )
    assert found.coordinator_of("billing", partition_count=50) == PEER
    assert found.coordinator_of("local-group", partition_count=50) == OWN


def test_an_unchanged_peer_view_changes_nothing() -> None:
    found = with_peer_view(image(site="b", links=[link()]), peer_view(topic("orders")))
    assert with_peer_view(found, peer_view(topic("orders"))) is found


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
