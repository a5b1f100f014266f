"""The classic group's assignment, equal to Java's, and the znodes of its members (rows HC-05 to
HC-10, RB-01 to RB-03).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.classic.core.classic_group import (
    STRATEGIES,
    UnequalSubscriptions,
    assign_range,
    assign_round_robin,
    consumer_id,
    matches_filter,
    sound_members,
    streams_by_topic,
    thread_ids,
    threads_by_topic,
)
from wire.znodes.consumer_znodes import (
    BLACK_LIST,
    WHITE_LIST,
    ConsumerRegistration,
    decode_offset,
    decode_registration,
    encode_offset,
    encode_registration,
    id_path,
    offset_path,
    owner_path,
)
from wire.znodes.documents import MalformedZnode


def owned(owners: dict[tuple[str, int], str], thread: str) -> list[int]:
    return sorted(partition for (_, partition), owner in owners.items() if owner == thread)


@pytest.mark.parametrize(
    ("partitions", "threads", "expected"),
    [
        (6, 4, [[0, 1], [2, 3], [4], [5]]),
        (3, 4, [[0], [1], [2], []]),
        (4, 4, [[0], [1], [2], [3]]),
        (3, 2, [[0, 1], [2]]),
    ],
)
def test_range_gives_the_first_threads_one_more(partitions: int, threads: int, expected: list[list[int]]) -> None:
    ids = [f"c-{number}" for number in range(threads)]
    owners = assign_range({"t": ids}, {"t": range(partitions)})
    assert [owned(owners, thread) for thread in ids] == expected


def test_round_robin_deals_out_in_the_order_of_javas_hashes() -> None:
    owners = assign_round_robin({"topic1": ["only"]}, {"topic1": range(12)})
    assert [partition for _, partition in owners] == [10, 11, *range(10)]
    owners = assign_round_robin({"orders": ["only"]}, {"orders": range(12)})
    assert [partition for _, partition in owners] == list(range(12))


def test_round_robin_deals_six_partitions_to_four_threads() -> None:
    ids = ["a-0", "a-1", "b-0", "b-1"]
    owners = assign_round_robin({"t": ids}, {"t": range(6)})
    assert [len(owned(owners, thread)) for thread in ids] == [2, 2, 1, 1]


def test_round_robin_wants_the_same_threads_for_every_topic() -> None:
    with pytest.raises(UnequalSubscriptions, match="t has a-0, b-0 and u has a-0"):
        assign_round_robin({"t": ["a-0", "b-0"], "u": ["a-0"]}, {"t": [0], "u": [0]})


def wants(*topics: str, count: int = 1) -> ConsumerRegistration:
    return ConsumerRegistration(subscription=dict.fromkeys(topics, count))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_member_with_an_unusable_filter_is_left_out_and_the_others_are_not(strategy: str) -> None:
    """HC-09."""
    registered = {
        "good": wants("t"),
        "bad": ConsumerRegistration(subscription={"t(": 1}, pattern=WHITE_LIST),
        "other": ConsumerRegistration(subscription={"u,t": 1}, pattern=WHITE_LIST),
    }
    sound, skipped = sound_members(registered, ["t"], strategy=strategy)
    assert list(sound) == ["good", "other"]
    assert "'t(' is not a regular expression" in skipped["bad"]


def test_round_robin_keeps_to_what_the_first_member_wants() -> None:
    """HC-09, FT-13."""
    registered = {
        "uneven": ConsumerRegistration(subscription={"t": 1, "u": 2}),
        "matches nothing yet": ConsumerRegistration(subscription={"later.*": 1}, pattern=WHITE_LIST),
        "first": wants("t"),
        "greedy": wants("t", "u"),
        "wider": wants("t", count=3),
    }
    sound, skipped = sound_members(registered, ["t", "u"], strategy="roundrobin")
    assert list(sound) == ["matches nothing yet", "first", "wider"]
    assert "the same number of streams" in skipped["uneven"]
    assert "first, who was first" in skipped["greedy"]
    assign_round_robin(threads_by_topic(sound, ["t", "u"]), {"t": [0]})
    assert sound_members(registered, ["t", "u"], strategy="range") == (registered, {})


def test_threads_are_sorted_as_text() -> None:
    registered = {"c": ConsumerRegistration(subscription={"t": 11})}
    assert threads_by_topic(registered, [])["t"][:4] == ["c-0", "c-1", "c-10", "c-2"]
    with pytest.raises(ValueError, match="at least 1"):
        thread_ids("c", 0)


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.dictionaries(st.sampled_from("abcd"), st.just({"t": 2, "u": 2}), min_size=1),
    st.dictionaries(st.sampled_from(["t", "u"]), st.integers(0, 20)),
)
def test_members_with_one_snapshot_agree_and_leave_nothing_out(
    strategy: str, members: dict[str, dict[str, int]], partitions: dict[str, int]
) -> None:
    registered = {name: ConsumerRegistration(subscription=wanted) for name, wanted in members.items()}
    threads = threads_by_topic(registered, [])
    listed = {topic: range(count) for topic, count in partitions.items()}
    owners = STRATEGIES[strategy](threads, listed)
    backwards = threads_by_topic(dict(reversed(registered.items())), [])
    assert STRATEGIES[strategy](backwards, listed) == owners
    assert set(owners) == {(topic, index) for topic in partitions for index in range(partitions[topic])}


def test_filters_share_their_streams_between_all_topics_that_match() -> None:
    topics = ["orders", "orders-eu", "payments", "__consumer_offsets"]
    white = ConsumerRegistration(subscription={"orders.*,payments": 2}, pattern=WHITE_LIST)
    black = ConsumerRegistration(subscription={"orders.*": 1}, pattern=BLACK_LIST)
    assert streams_by_topic(white, topics) == {"orders": 2, "orders-eu": 2, "payments": 2}
    assert streams_by_topic(black, topics) == {"payments": 1}
    assert "__consumer_offsets" in streams_by_topic(black, topics, excludes_internal=False)
    assert not matches_filter("orders-eu", "orders", is_blacklist=False)


def test_ids_and_paths_are_kafkas() -> None:
    assert consumer_id("g", host="h", started_ms=5, chance="0123456789") == "g_h-5-01234567"
    assert id_path("g", "c") == "/consumers/g/ids/c"
    assert owner_path("g", "t", 3) == "/consumers/g/owners/t/3"
    assert offset_path("g", "t", 3) == "/consumers/g/offsets/t/3"


def test_registrations_come_back_from_their_bytes_and_others_are_refused() -> None:
    registration = ConsumerRegistration(subscription={"t": 2}, timestamp_ms=7)
    written = encode_registration(registration)
    assert written == b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"7"}'
    assert decode_registration("/p", written) == registration
    assert decode_offset("/p", encode_offset(17)) == 17
    for payload in (b"", b"[]", b'{"subscription":{"t":0}}', b'{"subscription":{},"pattern":"grey"}'):
        with pytest.raises(MalformedZnode, match="/p"):
            decode_registration("/p", payload)
    with pytest.raises(MalformedZnode):
        decode_offset("/p", b"x")
