"""Torn transactions and the latest consistent point, against hand-made logs and random ones."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from dr.failover.core.torn_transactions import CommitMarker, survey
from wire.batches.transaction_members import TransactionMembers
from wire.protocol.ids import TopicPartition

P0, P1, P2 = (TopicPartition("flights", index) for index in range(3))


def marker(offset: int, name: str, *places: TopicPartition, at_ms: int = 10) -> CommitMarker:
    return CommitMarker(offset, 7, 0, 1, TransactionMembers(name, at_ms, frozenset(map(tuple, places))))


def carried(_: str) -> bool:
    return True


def test_a_transaction_with_all_markers_is_whole() -> None:
    found = survey({P0: [marker(3, "t", P0, P1)], P1: [marker(5, "t", P0, P1)]}, is_carried=carried)
    assert (found.torn, found.ends, found.due) == ((), {}, {})


def test_a_torn_transaction_is_named_with_what_is_kept_and_lacking() -> None:
    found = survey({P0: [marker(3, "t", P0, P1, P2)], P2: [marker(9, "t", P0, P1, P2)]}, is_carried=carried)
    (torn,) = found.torn
    assert (torn.transactional_id, torn.producer_id) == ("t", 7)
    assert (torn.kept, torn.lacking) == (("flights-0", "flights-2"), ("flights-1",))
    assert found.ends == {P0: 3, P2: 9}
    assert set(found.due) == {P1}
    assert "flights-1" in torn.sentence


def test_transactions_that_the_cut_tears_are_taken_out_too() -> None:
    logs = {
        P0: [marker(3, "torn", P0, P1), marker(6, "later", P0, P2)],
        P2: [marker(1, "earlier", P2, P0, at_ms=1), marker(4, "later", P0, P2)],
    }
    logs[P0].insert(0, marker(1, "earlier", P2, P0, at_ms=1))
    found = survey(logs, is_carried=carried)
    assert found.ends == {P0: 3, P2: 4}
    assert [one.transactional_id for one in found.torn] == ["torn"]
    assert found.undone_transactions == 2


def test_partitions_that_the_link_leaves_at_home_are_not_lacking() -> None:
    seats = TopicPartition("seats", 0)
    found = survey({P0: [marker(3, "t", P0, seats)]}, is_carried=lambda topic: topic != "seats")
    assert not found.torn


def test_transactions_decided_before_what_was_read_are_taken_for_whole() -> None:
    assert not survey({P0: [marker(3, "t", P0, P1, at_ms=10)]}, is_carried=carried, since_ms=11).torn


def test_two_transactions_of_one_producer_are_distinguished_by_their_times() -> None:
    found = survey(
        {
            P0: [marker(3, "t", P0, P1, at_ms=10), marker(7, "t", P0, P1, at_ms=20)],
            P1: [marker(3, "t", P0, P1, at_ms=10)],
        },
        is_carried=carried,
    )
    assert [one.decided_at_ms for one in found.torn] == [20]
    assert found.ends == {P0: 7}


def whole(logs: dict[TopicPartition, list[CommitMarker]], ends: dict[TopicPartition, int]) -> bool:
    """The definition: no transaction has a marker below the ends and lacks another one there."""
    there = {(place, one.members) for place, log in logs.items() for one in log if one.offset < ends.get(place, 10**9)}
    return all((TopicPartition(*at), members) in there for _, members in there for at in members.partitions)


def logs_of(members: Iterable[frozenset[int]], kept: tuple[int, int, int]) -> dict[TopicPartition, list[CommitMarker]]:
    """Transactions in the order of their commits, and how much of each log was mirrored."""
    logs: dict[TopicPartition, list[CommitMarker]] = {P0: [], P1: [], P2: []}
    for number, indexes in enumerate(members):
        places = [TopicPartition("flights", index) for index in sorted(indexes)]
        for place in places:
            logs[place].append(marker(len(logs[place]) * 2 + 1, f"t{number}", *places, at_ms=number))
    return {place: log[:count] for (place, log), count in zip(logs.items(), kept, strict=True)}


@given(
    st.lists(st.frozensets(st.integers(0, 2), min_size=2), max_size=8),
    st.tuples(*[st.integers(0, 8)] * 3),
)
def test_the_cut_has_no_torn_transaction_and_no_later_one_has_none(
    members: list[frozenset[int]], kept: tuple[int, int, int]
) -> None:
    logs = logs_of(members, kept)
    found = survey(logs, is_carried=carried)
    assert whole(logs, dict(found.ends))
    assert bool(found.ends) == bool(found.torn)
    for place, end in found.ends.items():
        later = {**found.ends, place: end + 1}
        assert not whole(logs, later)


@given(
    st.lists(st.frozensets(st.integers(0, 2), min_size=2), max_size=8),
    st.tuples(*[st.integers(0, 8)] * 3),
    st.integers(0, 2),
)
def test_a_run_that_was_interrupted_after_some_truncations_ends_at_the_same_cut(
    members: list[frozenset[int]], kept: tuple[int, int, int], done: int
) -> None:
    logs = logs_of(members, kept)
    ends = dict(survey(logs, is_carried=carried).ends)
    truncated = set(sorted(ends)[:done])
    rest = {
        place: [one for one in log if place not in truncated or one.offset < ends[place]] for place, log in logs.items()
    }
    again = dict(survey(rest, is_carried=carried).ends)
    assert {**{place: ends[place] for place in truncated}, **again} == ends
