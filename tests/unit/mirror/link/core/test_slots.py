"""Slots of a shared link: all given out, evenly, and few moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.link.core.slots import SLOTS, Strategy, decode_slots, encode_slots, share_slots, slot_of
from wire.protocol.ids import TopicPartition

MEMBERS = st.sets(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=20)
CLAIMS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.sets(st.integers(-5, SLOTS + 5)))


@given(MEMBERS, CLAIMS)
def test_every_slot_has_one_owner_and_shares_are_even(members: set[str], claims: dict[str, set[int]]) -> None:
    shares = share_slots(members, claims)
    assert shares.keys() == members
    given_out = [slot for slots in shares.values() for slot in slots]
    assert sorted(given_out) == list(range(SLOTS))
    sizes = [len(slots) for slots in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(MEMBERS, st.sampled_from(Strategy))
def test_every_strategy_gives_each_slot_to_one(members: set[str], strategy: Strategy) -> None:
    shares = share_slots(members, {}, strategy)
    assert sorted(slot for slots in shares.values() for slot in slots) == list(range(SLOTS))
    sizes = [len(slots) for slots in shares.values()]
    assert max(sizes) - min(sizes) <= 1


def test_range_gives_neighbours_and_round_robin_gives_turns() -> None:
    assert share_slots({"b", "a"}, {}, Strategy.RANGE)["a"] == frozenset(range(SLOTS // 2))
    assert share_slots({"b", "a"}, {}, Strategy.ROUND_ROBIN)["b"] == frozenset(range(1, SLOTS, 2))


@given(MEMBERS)
def test_nothing_moves_when_no_member_comes_or_goes(members: set[str]) -> None:
    shares = share_slots(members, {})
    assert share_slots(members, shares) == shares


@given(MEMBERS)
def test_a_newcomer_gets_its_share_and_nothing_else_moves(members: set[str]) -> None:
    before = share_slots(members, {})
    after = share_slots({*members, "newcomer"}, before)
    for member in members:
        assert after[member] <= before[member]


@given(MEMBERS)
def test_only_the_slots_of_a_member_that_leaves_move(members: set[str]) -> None:
    before = share_slots({*members, "leaver"}, {})
    left = {member: slots for member, slots in before.items() if member != "leaver"}
    after = share_slots(members, left)
    for member in members:
        assert after[member] >= before[member]


def test_without_members_no_slot_is_assigned() -> None:
    assert share_slots(set(), {"gone": {1}}) == {}


@given(st.sets(st.integers(0, SLOTS - 1)))
def test_slots_are_read_as_they_were_written(slots: set[int]) -> None:
    assert decode_slots(encode_slots(slots)) == slots


def test_metadata_that_others_wrote_is_no_claim() -> None:
    for data in (b"", b"\xff", b"[]", b"{}", b'{"slots":"x"}', b'{"slots":[1,9999]}'):
        assert decode_slots(data) <= {1}


def test_partitions_of_a_topic_follow_each_other() -> None:
    first = slot_of(TopicPartition("orders", 0))
    assert slot_of(TopicPartition("orders", 3)) == (first + 3) % SLOTS


def test_a_topic_s_partitions_come_to_different_daemons() -> None:
    held: dict[str, frozenset[int]] = {}
    for members in (["a"], ["a", "b"], ["a", "b", "c"], ["b", "c"], ["b", "c", "d"]):
        held = share_slots(members, {member: slots for member, slots in held.items() if member in members})
        for partitions in (6, 12):
            slots = [slot_of(TopicPartition("orders", partition)) for partition in range(partitions)]
            counts = [len(owned.intersection(slots)) for owned in held.values()]
            assert max(counts) - min(counts) <= 2, (members, counts)
