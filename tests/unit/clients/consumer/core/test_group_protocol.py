"""Subscriptions and assignments as every client writes them, and Kafka's two assignors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clients.consumer.core.group_protocol import (
    ASSIGNORS,
    Subscription,
    assign_range,
    assign_round_robin,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    wanted_topics,
)

topics = st.text(alphabet="abc", min_size=1, max_size=3)
places = st.frozensets(st.tuples(topics, st.integers(0, 9)))
JAVA_SUBSCRIPTION_V3 = bytes.fromhex(
    "0003 00000001 0001 74 ffffffff 00000001 0001 74 00000002 00000000 00000001 00000005 ffff"
)
"""Topic t, no user data, owned t-0 and t-1, generation 5, no rack."""


@given(st.frozensets(topics), places)
def test_subscriptions_come_back_from_their_bytes(wanted: frozenset[str], owned: frozenset[tuple[str, int]]) -> None:
    subscription = Subscription(topics=tuple(sorted(wanted)), owned=owned)
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(places)
def test_assignments_come_back_from_their_bytes(given_places: frozenset[tuple[str, int]]) -> None:
    assert decode_assignment(encode_assignment(given_places)) == given_places


def test_newer_subscriptions_are_read_too() -> None:
    assert decode_subscription(JAVA_SUBSCRIPTION_V3) == Subscription(
        topics=("t",), owned=frozenset({("t", 0), ("t", 1)})
    )
    assert decode_assignment(b"") == frozenset()


def test_a_member_with_malformed_metadata_wants_nothing_and_is_named() -> None:
    """NC-05."""
    sound = encode_subscription(Subscription(topics=("t",)))
    wanted, malformed = wanted_topics({"good": sound, "bad": sound[:-3], "empty": b""})
    assert wanted == {"good": ("t",), "bad": (), "empty": ()}
    assert set(malformed) == {"bad", "empty"}
    for assign in ASSIGNORS.values():
        assert assign(wanted, {"t": 2}) == {"good": [("t", 0), ("t", 1)], "bad": [], "empty": []}


def test_range_gives_rows_by_topic() -> None:
    found = assign_range({"b": ["t", "u"], "a": ["t", "u"], "c": ["u"]}, {"t": 3, "u": 3})
    assert found == {
        "a": [("t", 0), ("t", 1), ("u", 0)],
        "b": [("t", 2), ("u", 1)],
        "c": [("u", 2)],
    }


def test_round_robin_deals_out_over_all_topics() -> None:
    found = assign_round_robin({"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert found == {"a": [("t", 0), ("t", 2), ("u", 1)], "b": [("t", 1), ("u", 0), ("u", 2)]}


def test_round_robin_skips_who_does_not_want_the_topic() -> None:
    found = assign_round_robin({"a": ["t"], "b": ["t", "u"]}, {"t": 1, "u": 2})
    assert found == {"a": [("t", 0)], "b": [("u", 0), ("u", 1)]}


@given(
    st.sampled_from(sorted(ASSIGNORS)),
    st.dictionaries(st.text(alphabet="xyz", min_size=1), st.lists(topics, unique=True), min_size=1),
    st.dictionaries(topics, st.integers(0, 12)),
)
def test_every_wanted_partition_has_one_owner_that_wants_it(
    assignor: str, subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    found = ASSIGNORS[assignor](subscriptions, counts)
    dealt = [place for part in found.values() for place in part]
    wanted = {topic for each in subscriptions.values() for topic in each}
    assert sorted(dealt) == sorted((topic, index) for topic in wanted for index in range(counts.get(topic, 0)))
    assert all(topic in subscriptions[member] for member, part in found.items() for topic, _ in part)
