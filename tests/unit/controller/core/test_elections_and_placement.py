"""Selectors and placement, against the published vectors and by exhaustive properties."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import elections
from controller.core.elections import Election, NoLeader
from controller.core.state import partition_states, replica_states
from controller.core.state.partition_states import PartitionPhase
from controller.core.state.replica_states import ReplicaPhase
from controller.core.topics import placement

NO_RACKS: dict[int, str] = {}


def test_exactly_eight_of_the_sixteen_partition_moves_are_legal() -> None:
    legal = [pair for pair in itertools.product(PartitionPhase, repeat=2) if partition_states.may_move(*pair)]
    assert len(legal) == 8
    assert (PartitionPhase.NON_EXISTENT, PartitionPhase.ONLINE) not in legal


def test_exactly_fourteen_of_the_forty_nine_replica_moves_are_legal() -> None:
    legal = [pair for pair in itertools.product(ReplicaPhase, repeat=2) if replica_states.may_move(*pair)]
    assert len(legal) == 14
    assert (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_INELIGIBLE) in legal
    assert (ReplicaPhase.ONLINE, ReplicaPhase.DELETION_STARTED) not in legal


def test_first_leader_is_the_first_living_replica_and_all_the_living_are_in_sync() -> None:
    assert elections.elect_first(replicas=(1, 2, 3), live={2, 3}) == Election(leader=2, isr=(2, 3))
    assert isinstance(elections.elect_first(replicas=(1,), live={2}), NoLeader)


def test_offline_election_follows_the_assignment_not_the_isr_order() -> None:
    choice = elections.elect_offline(replicas=(1, 2, 3), isr=(3, 2), live={2, 3}, may_be_unclean=False)
    assert choice == Election(leader=2, isr=(3, 2))


def test_offline_election_leaves_the_isr_only_where_that_is_allowed() -> None:
    choice = elections.elect_offline(replicas=(1, 2, 3), isr=(1,), live={3}, may_be_unclean=True)
    assert choice == Election(leader=3, isr=(3,), is_unclean=True)
    assert isinstance(elections.elect_offline(replicas=(1, 2, 3), isr=(1,), live={3}, may_be_unclean=False), NoLeader)
    assert isinstance(elections.elect_offline(replicas=(1,), isr=(1,), live=set(), may_be_unclean=True), NoLeader)


def test_preferred_election_needs_a_living_in_sync_preferred_replica() -> None:
    assert elections.elect_preferred(leader=2, replicas=(1, 2), isr=(2, 1), live={1, 2}) == Election(
        leader=1, isr=(2, 1)
    )
    assert isinstance(elections.elect_preferred(leader=1, replicas=(1, 2), isr=(1, 2), live={1, 2}), NoLeader)
    assert isinstance(elections.elect_preferred(leader=2, replicas=(1, 2), isr=(2,), live={1, 2}), NoLeader)
    assert isinstance(elections.elect_preferred(leader=2, replicas=(1, 2), isr=(2, 1), live={2}), NoLeader)


def test_controlled_shutdown_moves_leadership_and_shrinks_the_isr() -> None:
    choice = elections.elect_at_controlled_shutdown(replicas=(1, 2, 3), isr=(1, 2), live={1, 2, 3}, leaving={1})
    assert choice == Election(leader=2, isr=(2,))
    assert isinstance(
        elections.elect_at_controlled_shutdown(replicas=(1, 2), isr=(1,), live={1, 2}, leaving={1}), NoLeader
    )


def test_reassignment_elects_the_first_in_sync_target() -> None:
    assert elections.elect_reassigned(target_replicas=(4, 3), isr=(2, 3), live={2, 3, 4}) == Election(
        leader=3, isr=(2, 3)
    )
    assert isinstance(elections.elect_reassigned(target_replicas=(), isr=(2,), live={2}), NoLeader)
    assert isinstance(elections.elect_reassigned(target_replicas=(4,), isr=(2,), live={2, 4}), NoLeader)


@given(
    replicas=st.lists(st.integers(0, 5), unique=True, min_size=1),
    isr=st.lists(st.integers(0, 5), unique=True),
    live=st.sets(st.integers(0, 5)),
)
def test_a_clean_election_never_leaves_the_in_sync_replicas(
    replicas: list[int], isr: list[int], live: set[int]
) -> None:
    choice = elections.elect_offline(replicas=replicas, isr=isr, live=live, may_be_unclean=False)
    if isinstance(choice, Election):
        assert choice.leader in set(isr) & live & set(replicas)
        assert set(choice.isr) == set(isr) & live


VECTORS = [
    ((0, 1, 2), 3, 2, 1, 0, {0: (1, 2), 1: (2, 0), 2: (0, 1)}),
    ((1, 2, 3, 4), 4, 2, 0, 2, {0: (1, 4), 1: (2, 1), 2: (3, 2), 3: (4, 3)}),
    ((0, 1, 2), 7, 2, 0, 0, {0: (0, 1), 1: (1, 2), 2: (2, 0), 3: (0, 2), 4: (1, 0), 5: (2, 1), 6: (0, 1)}),
]


@pytest.mark.parametrize(("nodes", "count", "factor", "start", "shift", "expected"), VECTORS)
def test_placement_matches_the_published_vectors(
    nodes: tuple[int, ...], count: int, factor: int, start: int, shift: int, expected: dict[int, tuple[int, ...]]
) -> None:
    placed = placement.place(
        nodes=nodes,
        racks=NO_RACKS,
        partition_count=count,
        replication_factor=factor,
        start_index=start,
        start_shift=shift,
    )
    assert placed == expected


def test_placement_of_ten_partitions_three_times_on_five_brokers() -> None:
    placed = placement.place(nodes=range(5), racks=NO_RACKS, partition_count=10, replication_factor=3)
    assert (placed[0], placed[4], placed[5], placed[9]) == ((0, 1, 2), (4, 0, 1), (0, 2, 3), (4, 1, 2))


def test_added_partitions_continue_from_the_index_given() -> None:
    placed = placement.place(
        nodes=(1, 2, 3, 4),
        racks=NO_RACKS,
        partition_count=2,
        replication_factor=2,
        first_partition=2,
        start_index=2,
        start_shift=2,
    )
    assert placed == {2: (1, 4), 3: (2, 1)}


def test_racks_are_alternated_and_every_partition_spans_as_many_racks_as_it_has_replicas() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}
    assert placement.alternate_racks((0, 3, 1, 5, 4, 2), racks) == (0, 1, 5, 3, 4, 2)
    placed = placement.place(nodes=range(6), racks=racks, partition_count=18, replication_factor=3)
    assert all({racks[node] for node in replicas} == {"a", "b", "c"} for replicas in placed.values())
    leaders = [replicas[0] for replicas in placed.values()]
    assert all(leaders.count(node) == 3 for node in range(6))


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    with_holes = placement.place(nodes=(1, 2, 3), racks={1: "a"}, partition_count=3, replication_factor=2)
    without = placement.place(nodes=(1, 2, 3), racks=NO_RACKS, partition_count=3, replication_factor=2)
    assert with_holes == without


def test_the_least_loaded_brokers_come_first() -> None:
    assert placement.least_loaded_first({1: 5, 2: 0, 3: 0, 4: 2}) == (2, 3, 4, 1)


@given(
    racks=st.dictionaries(st.integers(0, 9), st.sampled_from("abc"), min_size=1),
    count=st.integers(1, 30),
    data=st.data(),
)
def test_no_broker_holds_a_partition_twice_and_leaders_are_even(
    racks: dict[int, str], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = placement.place(
        nodes=sorted(racks),
        racks=racks,
        partition_count=count,
        replication_factor=factor,
        start_index=data.draw(st.integers(0, 50)),
        start_shift=data.draw(st.integers(0, 50)),
    )
    assert sorted(placed) == list(range(count))
    assert all(len(set(replicas)) == factor for replicas in placed.values())
    leaders = [replicas[0] for replicas in placed.values()]
    per_broker = [leaders.count(node) for node in racks]
    assert max(per_broker) - min(per_broker) <= 1
    spread = min(factor, len(set(racks.values())))
    assert all(len({racks[node] for node in replicas}) == spread for replicas in placed.values())
