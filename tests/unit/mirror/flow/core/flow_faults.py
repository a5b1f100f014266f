"""Faults and repairs of the flow's world, and runs of events that are drawn from them."""

from __future__ import annotations

from collections.abc import Callable

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_effects import Discard
from mirror.flow.core.flow_events import LinkTurned, Pause, Resume, Start
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.window import SendWindow
from mirror.link.core.link_roles import LinkRole
from tests.unit.mirror.flow.core.flow_world import World

Event = Callable[[World], None]


def producer_dies(world: World) -> None:
    """Its successor knows nothing; the flow starts again from the target's log end."""
    world.in_flight.clear()
    world.queue.clear()
    world.queued_bytes = 0
    world.window = SendWindow()
    world.window.generation = world.flow.facts.generation
    world.pending = [effect for effect in world.pending if not isinstance(effect, Discard)]
    world.submit(Start("a worker died"))


def mirror_dies(world: World) -> None:
    """A new process."""
    world.flow = Flow("orders-0")
    world.window = SendWindow()
    world.in_flight.clear()
    world.asked.clear()
    world.queue.clear()
    world.queued_bytes = 0
    world.pending.clear()
    world.retry = None
    world.wanted = None
    world.start()


def target_loses_its_tail(world: World) -> None:
    if world.target:
        world.break_connection()
        del world.target[-1]


def toggle_source(world: World) -> None:
    world.is_source_up = not world.is_source_up


def toggle_target(world: World) -> None:
    world.is_target_up = not world.is_target_up
    if not world.is_target_up:
        world.break_connection()


def source_comes_back(world: World) -> None:
    world.is_source_up = True


def target_comes_back(world: World) -> None:
    world.is_target_up = True


def pause(world: World) -> None:
    world.submit(Pause(reason="by hand"))


def resume(world: World) -> None:
    world.submit(Resume())


def drain_begins(world: World) -> None:
    world.submit(LinkTurned(role=LinkRole.DRAINING, reason="fenced"))


def drain_ends(world: World) -> None:
    world.submit(LinkTurned(role=LinkRole.MIRRORING, reason="unfenced"))


WORK: tuple[Event, ...] = (
    World.answer_question,
    World.ask,
    World.fetch,
    World.pull,
    World.send,
    World.deliver,
    World.fire_timer,
    World.report,
)
FAULTLESS: tuple[Event, ...] = (World.produce, *WORK, *WORK)
REPAIRS: tuple[Event, ...] = (resume, source_comes_back, target_comes_back)
FAULTS: tuple[Event, ...] = (
    World.break_connection,
    producer_dies,
    mirror_dies,
    target_loses_its_tail,
    toggle_source,
    toggle_target,
    pause,
    resume,
    drain_begins,
    drain_ends,
)


def run_steps(world: World, steps: int) -> None:
    for _ in range(steps):
        draw = world.chance.random()
        events = FAULTS if draw < 0.02 else REPAIRS if draw < 0.08 else FAULTLESS
        world.chance.choice(events)(world)
        world.check()


def heal(world: World) -> None:
    """No more faults: everything must arrive in a bounded number of steps."""
    world.is_source_up = world.is_target_up = True
    world.is_target_active = False
    resume(world)
    for _ in range(400 + 40 * len(world.source)):
        for event in WORK:
            event(world)
            world.check()
        is_running = world.flow.facts.state in (FlowState.MIRRORING, FlowState.PROMOTING)
        if is_running and world.target_end == world.source_end and not world.queue and world.window.is_idle:
            return
