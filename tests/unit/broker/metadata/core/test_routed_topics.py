"""Topics of a link as each site shows them: the leaders of the active site, and the topics of a
peer.
"""

from __future__ import annotations

import pytest

from broker.handlers.records.leader_hints import leader_hint
from broker.metadata.core.image_difference import NO_CHANGE, difference
from broker.metadata.core.image_updates import (
    topic_image,
    with_peer_reports,
    with_peer_view,
    without_old_reports,
)
from tests.support.memory.control_batches import OWN, PEER, image, link, peer_view, topic
from wire.control.cluster_pb2 import SiteView
from wire.protocol.messages.leader_hints import LeaderHint


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
