"""The machine of groups' offsets in a world that fails: reads without an answer, writes that are
refused or whose answer is lost, copies that grow late, groups that are reset.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.core.group_decisions import BEHIND_BELIEVED_AFTER_MS, FORGOTTEN_AFTER_MS
from mirror.groups.core.group_offsets import PROBLEM_PAUSE_MS_MAX, GroupOffsets
from mirror.groups.core.group_state import Circumstances, Copy, GroupDecision
from mirror.link.core.committed_offsets import REMOVED, GroupOffset
from runtime.invariants import InvariantBroken
from wire.protocol.ids import TopicPartition

GROUP = "billing"
KEYS = [TopicPartition("orders", partition) for partition in (0, 1)]
LOG_END_MAX = 20


class Step(NamedTuple):
    """One thing that happens; `key` and `value` mean what `what` makes of them."""

    what: str
    key: int
    value: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["commit", "remove", "grow", "follow", "round", "unread", "refuse", "lose", "pass", "restart"]),
        st.integers(0, 1),
        st.integers(0, LOG_END_MAX),
    ),
    max_size=40,
)


class World:
    """The twin: two dictionaries of offsets, and all that was ever committed at the source."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.machine = GroupOffsets()
        self.source: dict[TopicPartition, int] = {}
        self.history: dict[TopicPartition, list[int]] = {key: [] for key in KEYS}
        self.target: dict[TopicPartition, GroupOffset] = {}
        self.ends = dict.fromkeys(KEYS, 0)
        self.now_ms = 0.0

    def link(self) -> Circumstances:
        return Circumstances(
            now_ms=self.now_ms,
            is_routed=True,
            is_draining=False,
            is_kept_at_target=self.is_kept,
            copy_of=lambda key: Copy(True, True, 0, self.ends[key], 0),
            is_carried=lambda _: True,
        )

    def do(self, step: Step) -> None:
        key = KEYS[step.key]
        match step.what:
            case "commit":
                self.source[key] = step.value
                self.history[key].append(step.value)
                if step.value % 2:
                    self.machine.source_changed(GROUP, {key: GroupOffset(step.value)}, self.now_ms)
            case "remove":
                self.source.pop(key, None)
            case "grow":
                self.ends[key] = max(self.ends[key], step.value)
            case "restart":
                self.restart()
            case "pass":
                self.now_ms += 500 * step.value
            case "follow":
                changes = {at: GroupOffset(self.source[at]) if at in self.source else REMOVED for at in KEYS}
                self.machine.source_changed(GROUP, changes, self.now_ms)
                self.carry(self.machine.ready([GROUP], self.now_ms), "round")
            case _:
                self.round(step.what)
        self.machine.check_invariants(self.link())

    def round(self, fault: str = "round") -> None:
        due = self.machine.list_groups({GROUP} if self.source else (), self.link())
        for name in due:
            if fault == "unread":
                self.machine.fail(name, "no answer", self.now_ms)
            else:
                offsets = {key: GroupOffset(offset) for key, offset in self.source.items()}
                self.machine.source_read(name, offsets, now_ms=self.now_ms)
        self.carry(due if fault != "unread" else [], fault)
        if self.is_kept and GROUP in self.machine.unexplained([GROUP] if self.target else []):
            self.machine.adopt(GROUP, self.target, self.link())

    def restart(self) -> None:
        """Another daemon replaces this one, which has written all that the target has."""
        self.machine = GroupOffsets()

    def carry(self, names: list[str], fault: str) -> None:
        for name in names:
            if self.machine.unknown_at_target(name, self.link()):
                self.machine.target_read(name, self.target, self.link(), notes={})
            decision = self.machine.decide(name, self.link())
            self.machine.apply(decision, self.link())
            self.write(decision, fault)

    def write(self, decision: GroupDecision, fault: str) -> None:
        if fault == "refuse":
            self.machine.written(decision, {*decision.writes, *decision.refreshed, *decision.removed})
            self.machine.fail(decision.group, "refused", self.now_ms)
            return
        for key, offset in {**decision.refreshed, **decision.writes}.items():
            assert offset.offset <= self.ends[key], "a: ahead of the copy"
            before = self.target.get(key)
            if before is not None and offset.offset < before.offset:
                assert offset.offset in self.history[key], "b: back to an offset that the group never had"
            self.target[key] = offset
        for key, at_target in decision.removed.items():
            assert key not in self.source, "g: the source has it"
            assert not self.is_kept or self.target.get(key) in (None, at_target), "g: another offset than the known one"
            self.target.pop(key, None)
        if fault == "lose":  # the target has written, and its answer does not arrive
            self.machine.fail(decision.group, "no answer", self.now_ms)
            return
        self.machine.written(decision, ())
        self.machine.succeed(decision.group)


@given(STEPS, st.booleans())
def test_the_target_has_the_source_s_offsets_in_the_end_after_any_failure(steps: list[Step], is_kept: bool) -> None:
    world = World(is_kept=is_kept)
    for step in steps:
        world.do(step)
    world.ends = dict.fromkeys(KEYS, LOG_END_MAX)
    for wait_ms in (PROBLEM_PAUSE_MS_MAX, 0, BEHIND_BELIEVED_AFTER_MS, FORGOTTEN_AFTER_MS, 0, FORGOTTEN_AFTER_MS, 0):
        world.now_ms += wait_ms
        world.round()
        world.machine.check_invariants(world.link())
    kept = {key: offset.offset for key, offset in world.target.items()}
    assert {key: kept[key] for key in world.source} == world.source
    assert not is_kept or kept == world.source
    assert not world.machine.problems
    assert not world.machine.open_groups(world.now_ms)


def test_a_commit_ahead_of_its_copy_is_clamped_and_stays_open_until_the_copy_has_grown() -> None:
    world = World(is_kept=True)
    world.source = {KEYS[0]: 9}
    world.ends[KEYS[0]] = 4
    world.round()
    assert world.target[KEYS[0]].offset == 4
    assert world.machine.open_groups(world.now_ms) == [GROUP]
    world.ends[KEYS[0]] = 12
    world.carry([GROUP], "round")
    assert world.target[KEYS[0]].offset == 9
    assert not world.machine.open_groups(world.now_ms)


def test_a_write_that_may_not_be_is_refused_with_the_story() -> None:
    world = World(is_kept=True)
    world.source, world.ends[KEYS[0]] = {KEYS[0]: 9}, 12
    world.round()
    forged = GroupDecision(group=GROUP, writes={KEYS[0]: GroupOffset(13)}, sources={KEYS[0]: GroupOffset(13)})
    with pytest.raises(InvariantBroken, match="a: 13 is not within 0 to 12 of orders-0; story: billing orders-0"):
        world.machine.apply(forged, world.link())
