"""A controller may be killed after any stored fact: its successor ends in the same state, and
epochs never go back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.core import commands as ask
from controller.core.state.partition_states import PartitionPhase
from tests.support.memory.site_model import Crashed, SiteModel, link_record, topic_request

Step = Callable[[SiteModel], object]


def create(*names: str, partitions: int = 3, factor: int = 2) -> Step:
    return lambda model: model.give(
        ask.CreateTopics(topics=tuple(topic_request(name, partitions, factor) for name in names))
    )


def grow(name: str, total: int) -> Step:
    return lambda model: model.give(ask.CreatePartitions(topics=(ask.GrowthRequest(name=name, total_count=total),)))


def written(name: str, total: int) -> Step:
    """Another tool has grown the topic in ZooKeeper."""

    def step(model: SiteModel) -> None:
        stored = model.topics[name]
        added = dict.fromkeys(range(len(stored.assignment), total), (1,))
        if added:
            stored = replace(stored, assignment={**stored.assignment, **added}, version=stored.version + 1)
            model.topics[name] = stored
        model.give(ask.PartitionsFound(topic=name, assignment=stored.assignment, version=stored.version))

    return step


def configure(name: str, **configs: str) -> Step:
    change = ask.ConfigChange(name=name, set_configs={key.replace("_", "."): value for key, value in configs.items()})
    return lambda model: model.give(ask.AlterTopicConfigs(changes=(change,)))


def delete(*names: str) -> Step:
    return lambda model: model.give(ask.DeleteTopics(names=names))


def answers(model: SiteModel) -> None:
    model.answer_deletions()


def brokers(*nodes: int) -> Step:
    def step(model: SiteModel) -> None:
        alive = model.alive(*nodes)
        if model.machine is not None:
            model.give(ask.BrokersListed(brokers=alive))

    return step


def link(**fields: Any) -> Step:
    def step(model: SiteModel) -> None:
        record = link_record(**fields)
        model.links = {record.name: record}
        if model.machine is not None:
            model.give(ask.LinksListed(links=dict(model.links)))

    return step


def catch_up(model: SiteModel) -> None:
    model.catch_up()


def stop(node: int) -> Step:
    def step(model: SiteModel) -> None:
        model.give(ask.ControlledShutdown(node_id=node, broker_epoch=model.brokers[node].epoch))

    return step


def reassign(target: tuple[int, ...] | None, *names: str) -> Step:
    def step(model: SiteModel) -> None:
        targets = tuple((partition, target) for name in names for partition in model.cluster.topics[name].partitions())
        model.give(ask.AlterReassignments(targets=targets))

    return step


def elect(model: SiteModel) -> None:
    model.give(ask.ElectLeaders())


def unregister(node: int) -> Step:
    def step(model: SiteModel) -> None:
        model.give(ask.UnregisterBroker(node_id=node))

    return step


def quarantine(name: str) -> Step:
    """The topic's znode is damaged, and the next controller finds the damage."""

    def step(model: SiteModel) -> None:
        if name in model.topics:
            model.broken[name] = f"znode /brokers/topics/{name}: not JSON"
        model.take_over()

    return step


def store_raised(count_max: int) -> Step:
    """Some time after a raise of leader epochs: the states of its partitions are stored."""

    def step(model: SiteModel) -> None:
        while model.give(ask.StoreRaised(count_max=count_max)).facts:
            pass

    return step


def of_an_earlier_release(node: int) -> Step:
    """The broker leaves, and registers again in a release without raises of leader epochs."""

    def step(model: SiteModel) -> None:
        model.earlier_releases.add(node)
        brokers(*{1, 2, 3} - {node})(model)
        brokers(1, 2, 3)(model)

    return step


def mend(model: SiteModel) -> None:
    for name in sorted(model.broken):
        model.mend(name)


SEQUENCES: dict[str, list[Step]] = {
    "create": [create("t", "u")],
    "grow": [create("t"), grow("t", 6)],
    "grown by another tool": [create("t"), written("t", 6)],
    "configure": [create("t"), configure("t", retention_ms="5")],
    "delete": [create("t", "u"), delete("t"), answers],
    "delete with a dead broker": [create("t"), brokers(1, 3), delete("t"), answers, brokers(1, 2, 3), answers],
    "lose a broker": [create("t", "u"), brokers(1, 3)],
    "lose and regain brokers": [create("t", "u"), brokers(3), brokers(1, 2, 3)],
    "lose, regain and balance": [create("t", "u"), brokers(3), brokers(1, 2, 3), catch_up, elect],
    "stop a broker": [create("t", "u"), stop(2), brokers(1, 3), brokers(1, 2, 3), catch_up, elect],
    "reassign": [create("t", "u"), reassign((3, 2), "t", "u"), catch_up, elect],
    "reassign and cancel": [create("t"), reassign((3,), "t"), reassign((1, 2, 3), "t"), catch_up, elect],
    "give up": [create("t", "u"), brokers(1, 2), delete("t"), answers, unregister(3), delete("u"), answers],
    "given up and back": [create("t"), brokers(1, 2), delete("t"), unregister(3), brokers(1, 2, 3), answers],
    "quarantine": [create("t", "u"), quarantine("t"), brokers(1, 2), create("w"), mend, catch_up],
    "promote": [create("local", "orders.x"), link(active="a", epoch=2, floor=1 << 20), store_raised(2)],
    "promote and lose a broker": [
        create("orders.x", "orders.y"),
        link(active="a", epoch=2, floor=1 << 20),
        brokers(1, 3),
        store_raised(2),
        brokers(1, 2, 3),
        catch_up,
    ],
    "promote and lose the role": [
        create("orders.x"),
        link(active="a", epoch=2, floor=1 << 20),
        link(active="b", epoch=3, floor=2 << 20),
        brokers(1, 2),
        store_raised(1),
        link(active="a", epoch=4, floor=3 << 20),
        store_raised(1),
    ],
    "promote beside an earlier release": [
        create("orders.x", "orders.y"),
        of_an_earlier_release(3),
        link(active="a", epoch=2, floor=1 << 20),
        catch_up,
    ],
    "promote before an earlier release registers": [
        create("orders.x", "orders.y"),
        link(active="a", epoch=2, floor=1 << 20),
        of_an_earlier_release(3),
        catch_up,
    ],
    "promote and delete": [
        create("orders.x", "orders.y"),
        link(active="a", epoch=2, floor=1 << 20),
        delete("orders.x"),
        store_raised(1),
        answers,
    ],
    "promote with a damaged topic": [
        create("orders.x", "orders.y"),
        link(active="a", epoch=2, floor=1 << 20),
        quarantine("orders.x"),
        store_raised(1),
        link(active="b", epoch=3, floor=2 << 20),
        mend,
        store_raised(1),
    ],
}


def play(steps: list[Step], *, crash_after: int | None) -> tuple[SiteModel, bool]:
    """Play the steps; after a crash the successor takes over and the client asks again."""
    model = SiteModel()
    model.alive(1, 2, 3)
    model.crash_after = crash_after
    has_crashed = False
    for step in [SiteModel.take_over, *steps]:
        try:
            step(model)
        except Crashed:
            has_crashed = True
            model.take_over()
            step(model)
    return model, has_crashed


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_ends_the_same_wherever_the_controller_died(name: str) -> None:
    expected, _ = play(SEQUENCES[name], crash_after=None)
    for crash_after in range(expected.commits):
        model, has_crashed = play(SEQUENCES[name], crash_after=crash_after)
        assert has_crashed
        assert without_order(model.summary()) == without_order(expected.summary()), f"crash after {crash_after}"


@pytest.mark.parametrize("name", ["promote beside an earlier release", "promote before an earlier release registers"])
def test_a_controller_of_an_earlier_release_finds_every_raised_leader_epoch_in_the_states(name: str) -> None:
    model, _ = play(SEQUENCES[name], crash_after=None)
    assert not model.raises
    assert min(known.leader_epoch for known in model.leaderships.values()) >= 1 << 20
    assert {partition: known.leader_epoch for partition, known in model.leaderships.items()} == model.epochs


def without_order(summary: dict[str, Any]) -> dict[str, Any]:
    """In-sync replicas as sets: their order is history."""
    partitions = {name: (phase, leader, frozenset(isr)) for name, (phase, leader, isr) in summary["partitions"].items()}
    return {**summary, "partitions": partitions}


def test_a_takeover_that_is_itself_interrupted_is_taken_up_by_the_next() -> None:
    for first in range(1, 8):
        for second in range(6):
            model = SiteModel()
            model.alive(1, 2, 3)
            model.take_over()
            create("t", "u")(model)
            model.alive(2)
            for crash_after in (model.commits + second, model.commits + first):
                model.machine, model.crash_after = None, crash_after
                try:
                    model.take_over()
                except Crashed:
                    continue
            model.crash_after = None
            model.take_over()
            assert all(
                (phase is PartitionPhase.ONLINE) == (2 in model.cluster.replicas_of(partition))
                for partition, phase in model.cluster.partition_phases.items()
            )


ACTIONS = st.one_of(
    st.builds(create, st.sampled_from(["t", "u", "orders.x"]), partitions=st.integers(1, 4), factor=st.integers(1, 3)),
    st.builds(grow, st.sampled_from(["t", "u"]), st.integers(1, 6)),
    st.builds(delete, st.sampled_from(["t", "u", "orders.x"])),
    st.just(answers),
    st.builds(store_raised, st.integers(1, 5)),
    st.sets(st.integers(1, 4)).map(lambda nodes: brokers(*nodes)),
    st.builds(unregister, st.integers(1, 4)),
    st.builds(quarantine, st.sampled_from(["t", "u", "orders.x"])),
    st.just(mend),
    st.builds(
        link, active=st.sampled_from("ab"), epoch=st.integers(1, 5), floor=st.sampled_from([0, 1 << 20, 1 << 21])
    ),
)


@given(actions=st.lists(st.tuples(ACTIONS, st.none() | st.integers(0, 4)), max_size=25))
@settings(max_examples=150, deadline=None)
def test_random_histories_with_crashes_keep_every_invariant_and_heal(
    actions: list[tuple[Step, int | None]],
) -> None:
    model = SiteModel()
    model.alive(1, 2, 3)
    model.take_over()
    for step, crash_after in actions:
        model.crash_after = None if crash_after is None else model.commits + crash_after
        try:
            step(model)
        except Crashed:
            model.take_over()
    model.crash_after = None
    brokers(1, 2, 3, 4)(model)
    mend(model)
    answers(model)
    assert not model.cluster.deletions
    assert not model.cluster.unregistered
    assert not model.unregistered
    assert all(phase is PartitionPhase.ONLINE for phase in model.cluster.partition_phases.values())
    store_raised(3)(model)
    assert not model.raises
    assert all(known.is_stored for known in model.cluster.leaderships.values())
    before = model.summary()
    model.take_over()
    assert model.summary() == before
