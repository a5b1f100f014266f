"""The decisions of one partition's flow that several commands share: restart, halt, hold, wait.
Pure functions of the facts.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mirror.flow.core.flow_effects import Discard, Effect, RetryLater, StopFetching
from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.link.core.link_roles import GapPolicy, LinkRole

RUNNING = frozenset({FlowState.MIRRORING, FlowState.PROMOTING})
HELD = frozenset({FlowState.PAUSED, FlowState.PROMOTED, FlowState.RESET, FlowState.REFUSED})
NEEDS_A_PERSON = frozenset({FlowState.GAP, FlowState.FAULTED})
_STICKY = NEEDS_A_PERSON | {FlowState.SOURCE_UNAVAILABLE, FlowState.REVERSING}

CORRUPT_ATTEMPTS_MAX = 3
"""Number of times that a flow fetches batches that failed their checksum at the target, before it
is FAULTED.
"""


class FlowOptions(Struct, frozen=True, kw_only=True):
    """The settings of a flow. `way_out` is the advice to a person who wants a new copy, as the end
    of a sentence; it ends reasons that need it. `target_compares`: the target compares a batch that
    it has with one that is sent again.
    """

    gap_policy: GapPolicy = GapPolicy.HALT
    way_out: str = ""
    target_compares: bool = True


class Decision(Struct, frozen=True):
    """The next facts, the actions, and the reason (empty: nothing to log)."""

    facts: FlowFacts
    effects: tuple[Effect, ...] = ()
    reason: str = ""


def restart(
    facts: FlowFacts, reason: str, *extra: Effect, state: FlowState | None = None, attempts: int = 0
) -> Decision:
    """A new generation; after `attempts` failures it waits before it asks the target."""
    # The new number makes late answers to the former generation recognisable; they are dropped.
    generation = facts.generation + 1
    new = replace(
        facts,
        state=state or preparing_label(facts),
        reason=reason,
        # The flow settles first: batches in flight may still be appended after the target has
        # reported its end.
        step=Step.SETTLING,
        generation=generation,
        attempts=attempts,
        is_chained=False,
    )
    return Decision(new, (StopFetching(), Discard(generation=generation), *extra), reason)


def halt(facts: FlowFacts, state: FlowState, reason: str) -> Decision:
    """Stop in a state that needs a person, and check at long intervals whether its cause has
    ended.
    """
    # Each check counts as an attempt, so that the intervals grow.
    return restart(facts, reason, state=state, attempts=facts.attempts + 1)


def hold(facts: FlowFacts, state: FlowState, reason: str, *extra: Effect, role: LinkRole | None = None) -> Decision:
    """Stop until another command arrives; queued batches are dropped."""
    generation = facts.generation + 1
    new = replace(
        facts,
        state=state,
        reason=reason,
        step=Step.IDLE,
        generation=generation,
        is_chained=False,
        role=role or facts.role,
    )
    return Decision(new, (StopFetching(), Discard(generation=generation), *extra), reason)


def wait(facts: FlowFacts, reason: str, *extra: Effect, state: FlowState | None = None) -> Decision:
    """Wait in the same generation and try again later; with long waits if the state needs a
    person.
    """
    attempts = facts.attempts + 1
    label = state or preparing_label(facts)
    new = replace(facts, state=label, reason=reason, step=Step.WAITING, attempts=attempts)
    # The generation stays the same, so earlier results stay valid.
    retry = RetryLater(generation=facts.generation, attempt=attempts, is_slow=label in NEEDS_A_PERSON)
    return Decision(new, (*extra, StopFetching(), retry), reason)


def corrupt(facts: FlowFacts, reason: str) -> Decision:
    """Fetch the batches again; halt if they are damaged each time."""
    attempts = facts.attempts + 1
    # The bytes may have been damaged on the way. Only several failed attempts show that the
    # source's copy is damaged.
    if attempts > CORRUPT_ATTEMPTS_MAX:
        return halt(facts, FlowState.FAULTED, reason)
    return restart(facts, reason, attempts=attempts)


def preparing_label(facts: FlowFacts) -> FlowState:
    """The state while the flow prepares: a state with a cause stays until records flow again."""
    return facts.state if facts.state in _STICKY else FlowState.PREPARING


def running_label(facts: FlowFacts) -> FlowState:
    """The state while records flow, by the role of the link."""
    return FlowState.PROMOTING if facts.role is LinkRole.DRAINING else FlowState.MIRRORING
