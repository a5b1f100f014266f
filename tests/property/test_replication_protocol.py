"""Leaders, followers and controllers under random faults: nothing acknowledged is lost, logs never differ below the high watermark."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.replication_scene import NODES, ReplicationScene

Event = Callable[[ReplicationScene, int], object]


def node_of(number: int) -> int:
    return NODES[number % len(NODES)]


def cut(scene: ReplicationScene, number: int) -> None:
    first = node_of(number)
    scene.cuts ^= {frozenset((first, node_of(number + 1)))}


def wait(scene: ReplicationScene, number: int) -> None:
    scene.now_ms += number * 10


EVENTS: dict[str, Event] = {
    "produce": lambda scene, number: scene.produce(node_of(number)),
    "fetch": lambda scene, number: scene.fetch(node_of(number)),
    "answer": lambda scene, number: scene.deliver_answer(number),
    "image": lambda scene, number: scene.deliver_image(node_of(number)),
    "propose": lambda scene, number: scene.propose(node_of(number)),
    "proposed": lambda scene, number: scene.deliver_proposed(number),
    "shrink": lambda scene, number: scene.look_for_laggards(node_of(number)),
    "wait": wait,
    "checkpoint": lambda scene, number: scene.checkpoint(node_of(number)),
    "kill": lambda scene, number: scene.kill(node_of(number)),
    "start": lambda scene, number: scene.start(node_of(number)),
    "cut": cut,
    "suspect": lambda scene, number: scene.suspect(node_of(number)),
    "alive": lambda scene, number: scene.find_alive(node_of(number)),
    "sessions": lambda scene, _: scene.expire_sessions(),
    "stop": lambda scene, number: scene.prepare_stop(node_of(number)),
    "lose controller": lambda scene, number: scene.lose_controller(number % 3),
    "elect controller": lambda scene, _: scene.elect_controller(),
}
ORDINARY = ("produce", "fetch", "answer", "image", "propose", "proposed")
SCHEDULE = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(ORDINARY), st.sampled_from(ORDINARY), st.sampled_from(sorted(EVENTS))),
        st.integers(min_value=0, max_value=11),
    ),
    min_size=20,
    max_size=250,
)


@settings(max_examples=examples(300), deadline=None)
@given(schedule=SCHEDULE, min_insync_replicas=st.integers(min_value=1, max_value=2))
def test_no_schedule_of_faults_loses_what_was_acknowledged(
    schedule: list[tuple[str, int]], min_insync_replicas: int
) -> None:
    scene = ReplicationScene(min_insync_replicas=min_insync_replicas)
    for event, number in schedule:
        EVENTS[event](scene, number)
        scene.check()
    scene.heal()


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_long_histories_stay_sound(seed: int) -> None:
    """Longer than what can be shrunk; a seed that fails replays."""
    chance = random.Random(seed)
    scene = ReplicationScene(min_insync_replicas=chance.choice((1, 2)))
    calm = chance.choice((0.5, 0.8, 0.95))
    for _ in range(400):
        event = chance.choice(ORDINARY if chance.random() < calm else sorted(EVENTS))
        EVENTS[event](scene, chance.randrange(12))
        scene.check()
    scene.heal()
