"""One partition's flow in a small world that does its worst: the target stays a prefix of the
source (M1), and has everything when all faults are healed.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.flow.core.flow_state import FlowState
from tests.unit.mirror.flow.core.flow_faults import FAULTLESS, heal, mirror_dies, run_steps, toggle_source
from tests.unit.mirror.flow.core.flow_world import World

SEEDS = st.integers(min_value=0, max_value=1 << 32)
BEGINNINGS = st.sampled_from((0, 7))


@given(seed=SEEDS, begins_offset=BEGINNINGS)
def test_target_is_always_a_prefix_and_catches_up_after_any_faults(seed: int, begins_offset: int) -> None:
    world = World(random.Random(seed), begins_offset=begins_offset)
    world.start()
    run_steps(world, 1000)
    heal(world)
    assert world.target_end == world.source_end, (seed, world.flow.facts, world.flow.story)
    assert world.flow.facts.state in (FlowState.MIRRORING, FlowState.PROMOTING), (seed, world.flow.story)


@given(seed=SEEDS)
def test_a_first_batch_across_the_source_s_log_start_is_fetched_until_it_finds_room(seed: int) -> None:
    world = World(random.Random(seed), begins_offset=7)
    world.source = [(4, 9, 0)]
    world.full_share = 0.6
    world.start()
    for _ in range(300):
        world.chance.choice(FAULTLESS)(world)
        world.check()
        assert world.flow.facts.state is not FlowState.GAP, world.flow.story
    heal(world)
    assert world.target == world.source, world.flow.story


@given(seed=SEEDS, begins_offset=BEGINNINGS, is_begun=st.booleans(), is_restarted=st.booleans())
def test_expired_records_are_a_gap_and_never_skipped_in_silence(
    seed: int, begins_offset: int, is_begun: bool, is_restarted: bool
) -> None:
    world = World(random.Random(seed), begins_offset=begins_offset)
    world.start()
    if is_begun:
        run_steps(world, 300)
        heal(world)
    end = world.target_end if world.target else begins_offset
    world.is_source_up = False
    for _ in range(3):
        world.ask()
        world.fetch()
        world.produce()
    world.source_start = world.source[-1][0]
    world.source = world.source[-1:]
    if world.source_start <= end:
        return
    if is_restarted:
        mirror_dies(world)
    before = list(world.target)
    world.check = lambda: None  # type: ignore[method-assign]
    heal(world)
    assert world.flow.facts.state is FlowState.GAP, world.flow.story
    assert f"{world.source_start - end} offsets expired" in world.flow.facts.reason
    assert world.target == before


@pytest.mark.parametrize("seed", range(20))
def test_a_promoted_target_is_never_written(seed: int) -> None:
    world = World(random.Random(seed))
    world.start()
    run_steps(world, 300)
    world.is_target_active = True
    before = list(world.target)
    run_steps_without_losing_the_tail(world, 200)
    assert world.target == before


def run_steps_without_losing_the_tail(world: World, steps: int) -> None:
    for _ in range(steps):
        world.chance.choice((*FAULTLESS, World.break_connection, toggle_source, mirror_dies))(world)
        world.check()
