"""Plans that place replicas: Kafka's JSON, and proposals."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.administration.reassignment_plan import (
    Replica,
    UnusablePlan,
    parse_directories,
    parse_partitions,
    parse_plan,
    plan_document,
    propose,
)
from wire.protocol.ids import TopicPartition

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def test_a_plan_is_read_as_it_is_written() -> None:
    plan = {T0: (1, 2), T1: (3, 1)}
    assert parse_plan(json.dumps(plan_document(plan))) == plan
    assert parse_partitions(json.dumps(plan_document(plan))) == [T0, T1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no", "no JSON"),
        ("[]", "accepted is"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": []}', "no partition"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "needs topic, partition and replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "each on another broker"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "1 replicas and 0 log_dirs",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": "d"}]}', "log_dirs as a list"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [2]}]}', "log_dirs as a list"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(UnusablePlan, match=complaint):
        (parse_plan(text), parse_directories(text))


def test_log_directories_are_read_by_replica_and_any_means_none() -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "log_dirs": ["any", "/d/", "e/f"]}
    assert parse_directories(json.dumps({"partitions": [entry]})) == {Replica(T0, 2): "/d", Replica(T0, 3): "e/f"}
    assert parse_directories(json.dumps(plan_document({T0: (1, 2)}))) == {}


def test_an_even_plan_stays() -> None:
    plan = {T0: (1, 2), T1: (2, 3), T2: (3, 1)}
    assert propose(plan, [1, 2, 3], racks={}) == plan


def test_a_broker_that_shall_be_empty_hands_its_replicas_to_those_with_the_fewest() -> None:
    after = propose({T0: (1, 4), T1: (2, 4), T2: (3, 4)}, [1, 2, 3], racks={})
    assert {place: replicas[0] for place, replicas in after.items()} == {T0: 1, T1: 2, T2: 3}
    assert Counter(node for replicas in after.values() for node in replicas) == {1: 2, 2: 2, 3: 2}


def test_a_new_broker_gets_its_share_and_leads_some() -> None:
    before = {TopicPartition("t", index): (1, 2) for index in range(6)}
    after = propose(before, [1, 2, 3], racks={})
    assert Counter(node for replicas in after.values() for node in replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}


def test_a_higher_replication_factor_goes_to_other_racks_first() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = propose({T0: (1,)}, [1, 2, 3, 4], racks=racks, replication_factor=2)
    assert {racks[node] for node in after[T0]} == {"a", "b"}


def test_too_few_brokers_are_reported() -> None:
    with pytest.raises(UnusablePlan, match="t-0 needs 3 brokers; given: 1, 2"):
        propose({T0: (1, 2, 3)}, [1, 2], racks={})


@given(
    replicas=st.lists(st.permutations(range(6)), max_size=12),
    factor=st.integers(1, 3),
    brokers=st.sets(st.integers(0, 5), min_size=3),
)
def test_a_proposal_is_always_a_proper_and_even_assignment(
    replicas: list[list[int]], factor: int, brokers: set[int]
) -> None:
    before = {TopicPartition("t", index): tuple(nodes[:factor]) for index, nodes in enumerate(replicas)}
    after = propose(before, brokers, racks={})
    assert after.keys() == before.keys()
    assert all(len(set(nodes)) == factor and set(nodes) <= brokers for nodes in after.values())
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(node for nodes in after.values() for node in nodes)
    assert max(load.values()) - min(load.values()) <= 1
    assert propose(after, brokers, racks={}) == after
