"""The view of a site for its peer, and the checks that a link must pass."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dr.agent.core.site_view import (
    SiteFacts,
    brief_view,
    shown_topics,
    viewed_topics,
    whole_view,
    without_topics,
)
from dr.sites.core.link_checks import (
    automatic_problems,
    deposed_problems,
    group_warnings,
    overlap_problems,
    pair_problems,
    record_problems,
    topic_id_problems,
)
from wire.control.cluster_pb2 import BrokerInfo, LinkPhase, LinkRecord, SiteView, TopicInfo
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment


def link(
    name: str = "a-b", *, source: str = "a", target: str = "b", topics: tuple[str, ...] = ("flights",)
) -> LinkRecord:
    return LinkRecord(
        name=name,
        source_site=source,
        target_site=target,
        mode="exact",
        epoch=1,
        active_site=source,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=topics,
    )


def facts() -> SiteFacts:
    registration = BrokerRegistration(
        node_id=1, endpoints=(BrokerEndpoint(listener="CLIENT", host="h", port=9),), grpc_address="h:10", rack="r"
    )
    assignment = TopicAssignment(topic_id=b"i" * 16, partitions={0: (1,), 1: (1,)})
    state = StoredPartitionState(leader=1, leader_epoch=4, isr=(1,), controller_epoch=2)
    return SiteFacts(
        site="a",
        cluster_id="c",
        controller_id=1,
        brokers={1: (registration, 77)},
        links={"a-b": link(), "a-c": link("a-c", target="c", topics=("secret",))},
        topics=dict.fromkeys(("flights", "secret", "__consumer_offsets"), assignment),
        states={("flights", 0): (state, 3), ("__consumer_offsets", 1): (state, 0)},
    )


def site_view(known: SiteFacts, *, asking_site: str) -> SiteView:
    topics = viewed_topics(known, shown_topics(known, asking_site=asking_site))
    return whole_view(brief_view(known, topics.version, asking_site=asking_site), topics.topics)


def test_a_view_without_topics_has_the_digest_of_the_topics_that_it_leaves_out() -> None:
    before = site_view(facts(), asking_site="b")
    raised = link()
    raised.epoch = 2
    after = site_view(replace(facts(), links={"a-b": raised}), asking_site="b")
    assert before.topics_version == after.topics_version > 0
    assert before.version != after.version
    brief = without_topics(after)
    assert (len(brief.topics), brief.has_known_topics, after.has_known_topics) == (0, True, False)
    assert whole_view(brief, before.topics) == after
    state = StoredPartitionState(leader=1, leader_epoch=5, isr=(1,), controller_epoch=2)
    elected = site_view(replace(facts(), states={("flights", 0): (state, 4)}), asking_site="b")
    assert elected.topics_version != before.topics_version
    earlier = SiteView(site="a", version=7, topics=before.topics)
    assert without_topics(earlier) is earlier


def test_a_peer_sees_only_the_topics_of_links_with_it_and_partitions_without_a_state_have_no_leader() -> None:
    view = site_view(facts(), asking_site="b")
    (topic,) = view.topics
    assert (topic.name, [state.leader for state in topic.partitions]) == ("flights", [1, -1])
    assert topic.partitions[0].partition_epoch == 3
    assert list(view.group_coordinators) == [-1, 1]
    assert [record.name for record in view.links] == ["a-b"]
    assert (view.brokers[0].broker_epoch, view.brokers[0].endpoints[0].port) == (77, 9)


def test_a_peer_of_a_routed_link_sees_what_clients_may_ask_it_for_too() -> None:
    known = facts()
    routed, assignment = link(), known.topics["flights"]
    routed.is_routed = True
    known = replace(known, links={**known.links, "a-b": routed}, topics={**known.topics, "home": assignment})
    assert [topic.name for topic in site_view(known, asking_site="b").topics] == ["flights", "home", "secret"]
    assert [topic.name for topic in site_view(known, asking_site="c").topics] == ["secret"]
    copied = link("a-c", target="c", topics=("secret",))
    copied.active_site = "c"
    known = replace(known, links={**known.links, "a-c": copied})
    assert [topic.name for topic in site_view(known, asking_site="b").topics] == ["flights", "home"]


def test_the_version_changes_with_the_contents_and_is_the_same_for_the_same() -> None:
    before = site_view(facts(), asking_site="b")
    assert before.version == site_view(facts(), asking_site="b").version > 0
    assert before.version != site_view(replace(facts(), controller_id=2), asking_site="b").version


def test_a_record_with_problems_is_reported_with_all_of_them() -> None:
    record = LinkRecord(name="a b", source_site="a", target_site="a", mode="fast", group_whitelist=["("])
    problems = "; ".join(record_problems(record))
    for part in ("name 'a b'", "both 'a'", "mode 'fast'", "whitelist is empty", "not a regular expression"):
        assert part in problems
    assert record_problems(link()) == []


def test_a_topic_may_be_in_two_links_only_where_the_site_is_active_in_both() -> None:
    fan_out, back = link("a-c", target="c"), link("b-a", source="b", target="a")
    assert overlap_problems(fan_out, site="a", links=[link()], topics=[]) == []
    assert "'a-b' carries flights" in overlap_problems(back, site="a", links=[link()], topics=[])[0]
    wide = link("c-a", source="c", target="a", topics=("fl.*",))
    assert overlap_problems(wide, site="a", links=[link(topics=("f.*",))], topics=["flights"])
    assert overlap_problems(wide, site="a", links=[link(topics=("fl.*",))], topics=[])
    assert overlap_problems(back, site="a", links=[back], topics=["flights"]) == []


def test_only_one_link_of_a_site_fails_over_by_itself_for_the_same_topics() -> None:
    first, second = link("a-b"), link("a-c", target="c")
    for one in (first, second):
        one.lease_ms, one.failover_mode = 2_000, "automatic"

    def problems(*, site: str = "a", topics: Sequence[str] = ("flights",)) -> list[str]:
        return automatic_problems(second, site=site, links=[first, second], topics=topics)

    (problem,) = problems()
    assert "failover mode 'automatic': link 'a-b' carries flights too and fails over by itself to b" in problem
    assert "accepted are 'manual' and 'observe', or take 'automatic' from 'a-b' first" in problem
    assert problems(topics=()) == [problem], "its whitelist names the topic"
    assert problems(site="c") == [], "the active site decides, which has both links"
    first.topic_whitelist[:] = second.topic_whitelist[:] = ["board.*"]
    assert problems(topics=()), "the same pattern may match the same topic later"
    second.topic_whitelist[:] = ["flights"]
    assert problems() == []
    first.topic_whitelist[:] = ["flights"]
    for mode in ("observe", ""):
        first.failover_mode = mode
        assert problems() == []
    first.failover_mode, second.failover_mode = "automatic", "observe"
    assert problems() == []


def test_groups_that_two_links_of_the_same_sites_carry_with_other_topics_are_a_warning() -> None:
    def warnings(one: tuple[str, ...], second: tuple[str, ...], *, topics: tuple[str, ...] = ("boards",)) -> list[str]:
        made, planned = link("a-b-rest", topics=topics), link()
        made.group_whitelist[:], planned.group_whitelist[:] = one, second
        return group_warnings(planned, links=[made, planned], topics=["flights", "boards"])

    (warning,) = warnings((".*",), (".*",))
    assert "link 'a-b-rest' carries groups of '.*' too" in warning
    assert "these groups work at neither site" in warning
    assert "--group-whitelist" in warning
    assert len(warnings((".*",), ("flights-.*",))) == len(warnings(("flights-.*",), (".*",))) == 1
    assert warnings(("rest-.*",), ("flights-.*",)) == []
    assert warnings((), (".*",)) == []
    assert warnings((".*",), (".*",), topics=("flights",)) == [], "two standbys' links of the same topics move together"
    elsewhere = link("a-c", target="c", topics=("boards",))
    elsewhere.group_whitelist[:] = [".*"]
    planned = link()
    planned.group_whitelist[:] = [".*"]
    assert group_warnings(planned, links=[elsewhere], topics=[]) == []


def test_a_link_whose_active_site_another_link_made_passive_is_named() -> None:
    turned, stale = link("a-b"), link("a-c", target="c")
    turned.active_site = "b"
    (problem,) = deposed_problems(stale, links=[turned, stale], topics=["flights"])
    assert "site a is passive for flights, since link a-b made b active: let c follow b" in problem
    assert deposed_problems(turned, links=[turned, stale], topics=["flights"]) == []
    assert deposed_problems(stale, links=[link("b-d", source="b", target="d")], topics=["flights"]) == []
    turned.topic_whitelist[:] = ["boards"]
    assert deposed_problems(stale, links=[turned], topics=["flights"]) == []


def test_m5_a_chain_of_exact_links_that_carry_one_topic_is_refused_where_it_would_close_or_go_on() -> None:
    """Otherwise a record could come back to its site. Of all sites that exact links join, one may
    write to a topic.
    """
    first, second, third = link("a-b"), link("b-c", source="b", target="c"), link("c-a", source="c", target="a")
    assert overlap_problems(second, site="b", links=[first], topics=["flights"])
    assert overlap_problems(third, site="c", links=[second], topics=["flights"])
    assert overlap_problems(third, site="a", links=[first], topics=["flights"])


def test_sites_that_differ_in_cluster_or_share_node_ids_cannot_be_linked() -> None:
    source = SiteView(site="a", cluster_id="one", brokers=[BrokerInfo(node_id=1)])
    target = SiteView(site="b", cluster_id="two", brokers=[BrokerInfo(node_id=2)])
    problems = pair_problems(source, target, source_site="a", target_site="x")
    assert len(problems) == 3
    target.MergeFrom(SiteView(cluster_id="one"))
    target.brokers[0].node_id = 1001
    assert pair_problems(source, target, source_site="a", target_site="b") == []


def test_topics_of_one_name_and_two_ids_are_reported_where_the_link_carries_them() -> None:
    source = SiteView(site="a", topics=[TopicInfo(name=name, topic_id=b"1" * 16) for name in ("flights", "boards")])
    target = SiteView(
        site="b", topics=[TopicInfo(name=name, topic_id=b"2" * 16) for name in ("flights", "boards", "new")]
    )
    clash = "at b flights exist as other topics of the same name: delete or blacklist them"
    assert topic_id_problems(link(), source, target) == [clash]
    assert topic_id_problems(link(), source, source) == []
    assert topic_id_problems(link(topics=("new",)), source, target) == []
