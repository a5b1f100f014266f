"""A peer's topics from its views and from the reports between them, in any order of arrival."""

from __future__ import annotations

import itertools

from broker.metadata.core.peer_topics import PeerTopics
from broker.metadata.core.topic_images import PartitionImage, TopicImage

OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def topic(name: str = "t", *, topic_id: bytes = OLD_ID, count: int = 1, leader: int = 1, epoch: int = 0) -> TopicImage:
    partitions = {
        index: PartitionImage(
            index=index, leader=leader, leader_epoch=epoch, partition_epoch=0, replicas=(1, 2), isr=(1, 2)
        )
        for index in range(count)
    }
    return TopicImage(name=name, topic_id=topic_id, configs={}, partitions=partitions)


def reported(topics: PeerTopics, *changed: TopicImage, at_ms: float = 0) -> PeerTopics:
    for found in changed:
        topics = topics.with_report(found, is_deleted=False, at_ms=at_ms)
    return topics


def deleted(topics: PeerTopics, gone: TopicImage, at_ms: float = 0) -> PeerTopics:
    return topics.with_report(gone, is_deleted=True, at_ms=at_ms)


def test_a_topic_that_was_just_made_is_there_before_a_view_has_it_and_after_a_view_that_was_older() -> None:
    found = reported(PeerTopics().with_view([topic("other", topic_id=NEW_ID)]), topic())
    assert (list(found), found.get("t"), found.name_of(OLD_ID)) == (["other", "t"], topic(), "t")
    assert found.with_view([topic("other", topic_id=NEW_ID)]).get("t") == topic()
    assert list(found.with_view([topic("other", topic_id=NEW_ID), topic()])) == ["other", "t"]


def test_a_topic_that_was_just_deleted_is_gone_whatever_older_views_and_reports_still_say() -> None:
    found = deleted(PeerTopics().with_view([topic()]), topic())
    for later in (found, found.with_view([topic()]), reported(found, topic(count=2))):
        assert (list(later), later.get("t"), later.name_of(OLD_ID)) == ([], None, None)


def test_a_topic_made_again_under_its_name_is_the_new_one_in_whatever_order_reports_and_views_come() -> None:
    old, new = topic(), topic(topic_id=NEW_ID, count=3)
    for order in itertools.permutations(
        (
            lambda topics: deleted(topics, old),
            lambda topics: reported(topics, new),
            lambda topics: topics.with_view([old]),
        )
    ):
        found = PeerTopics()
        for step in order:
            found = step(found)
        assert found.get("t") == new
        assert (found.name_of(NEW_ID), found.name_of(OLD_ID)) == ("t", None)


def test_of_two_states_of_a_partition_the_newer_one_counts() -> None:
    moved, grown = topic(leader=2, epoch=1), topic(count=2)
    for first, second in ((moved, grown), (grown, moved)):
        for found in (
            reported(PeerTopics(), first, second),
            reported(PeerTopics().with_view([first]), second),
            reported(PeerTopics(), first).with_view([second]),
        ):
            now = found.get("t")
            assert now is not None
            assert [partition.leader for partition in now.partitions.values()] == [2, 1]


def test_a_view_that_has_caught_up_takes_the_place_of_a_report() -> None:
    found = reported(PeerTopics(), topic(count=2)).with_view([topic(count=2)])
    assert not found.reports
    assert list(found.with_view([])) == []


def test_a_report_that_no_view_confirms_is_forgotten_once_it_is_old() -> None:
    found = reported(PeerTopics(), topic(), at_ms=100)
    assert found.without_old_reports(before_ms=100) is found
    assert list(found.without_old_reports(before_ms=101)) == []
    again = deleted(PeerTopics().with_view([topic()]), topic(), at_ms=100).without_old_reports(before_ms=101)
    assert list(again) == ["t"]


def test_a_report_shares_what_it_does_not_name_with_the_topics_before_it() -> None:
    """Its cost grows with the topics that it names, not with all topics."""
    before = PeerTopics().with_view([topic(f"t{number}") for number in range(10)])
    assert reported(before, topic("new")).viewed is before.viewed
