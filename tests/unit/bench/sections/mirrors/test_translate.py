"""Two mirrors between the same two brokers: their turns, and the topics of each."""

from __future__ import annotations

from bench.measuring.figures import Side
from bench.peers.mirror_maker import mirrored_topic
from bench.sections.mirrors.translate import BYTES_PER_S, in_turn, steady_topics, translated_topic


def test_the_mirror_that_goes_first_changes_with_each_repeat() -> None:
    orders = [in_turn(tuple(Side), repeat) for repeat in range(3)]
    assert orders == [(Side.ANTIPODE, Side.PEER), (Side.PEER, Side.ANTIPODE), (Side.ANTIPODE, Side.PEER)]


def test_the_mirrors_share_no_topic_of_a_steady_load() -> None:
    ours, theirs = steady_topics(Side.ANTIPODE), steady_topics(Side.PEER)
    assert not ours.keys() & theirs.keys()
    assert list(ours.values()) == list(theirs.values()) == list(BYTES_PER_S.values())


def test_the_mirrors_write_to_different_topics_of_the_target() -> None:
    assert translated_topic("drained") != mirrored_topic("drained")
