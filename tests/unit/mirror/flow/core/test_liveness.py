"""Stalled partitions, and the remedies with their times."""

from __future__ import annotations

import pytest

from mirror.flow.core.flow_state import FlowFacts, FlowState, Step
from mirror.flow.core.lag import Progress
from mirror.flow.core.liveness import DOUBLINGS_MAX, Liveness, Remedy
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
STALL_MS = 100


def facts(
    *,
    state: FlowState = FlowState.MIRRORING,
    step: Step = Step.STREAMING,
    source: int = 10,
    target: int = 5,
    tries: int = 0,
) -> FlowFacts:
    progress = Progress(source_high_watermark=source, target_log_end_offset=target)
    return FlowFacts(state=state, step=step, attempts=tries, progress=progress)


class Watched:
    """A partition that is looked at every tenth of the time that makes a stall."""

    def __init__(self) -> None:
        self.liveness = Liveness(stall_ms=STALL_MS)
        self.now_ms = 0.0

    def look(self, seen: FlowFacts, *, received_ms_ago: float = 0, is_congested: bool = False) -> Remedy | None:
        """Looks once; returns None when there is no suspicion."""
        self.now_ms += STALL_MS / 10
        if not self.liveness.see(KEY, seen, received_ms_ago=received_ms_ago, now_ms=self.now_ms):
            return None
        return self.liveness.judge(KEY, seen, is_congested=is_congested, now_ms=self.now_ms)

    def look_for(self, times: int, seen: FlowFacts, **how: bool) -> list[tuple[float, Remedy]]:
        """The remedies that were asked for, each with its time in stall times."""
        found = [(self.look(seen, **how), self.now_ms / STALL_MS) for _ in range(10 * times)]
        return [(at, remedy) for remedy, at in found if remedy not in (None, Remedy.NONE)]

    @property
    def is_stalled(self) -> bool:
        return KEY in self.liveness.stalled_since_ms


def test_a_partition_that_moves_or_has_everything_is_never_stalled() -> None:
    watched = Watched()
    for end in range(40):
        assert watched.look(facts(target=end, source=100)) is None
    assert watched.look_for(5, facts(target=100, source=100)) == []
    assert not watched.is_stalled


def test_a_stalled_flow_is_started_anew_first_then_its_workers_are_replaced_at_longer_and_longer_intervals() -> None:
    watched = Watched()
    remedies = watched.look_for(40, facts())
    assert [remedy for _, remedy in remedies] == [Remedy.RESTART, *[Remedy.REPLACE_WORKERS] * 3]
    assert [round(at) for at, _ in remedies] == [2, 6, 14, 30]
    assert watched.is_stalled
    assert watched.look(facts(target=6)) is None
    assert not watched.is_stalled


def test_the_intervals_do_not_grow_for_ever() -> None:
    watched = Watched()
    times = [at for at, _ in watched.look_for(3 * 2 ** (DOUBLINGS_MAX + 1), facts())]
    assert round(times[-1] - times[-2]) == 2**DOUBLINGS_MAX


def test_no_answer_for_a_partition_of_an_answering_source_is_a_stall_too() -> None:
    watched = Watched()
    equal = facts(source=5, target=5)
    for _ in range(15):
        watched.look(equal, received_ms_ago=STALL_MS)
    assert watched.is_stalled
    assert watched.look(equal) is None
    assert not watched.is_stalled


@pytest.mark.parametrize("step", [Step.SETTLING, Step.FINDING_TARGET, Step.CHECKING_SOURCE])
def test_a_question_without_an_answer_is_asked_anew_but_not_one_that_is_repeated_already(step: Step) -> None:
    assert Watched().look_for(5, facts(state=FlowState.PREPARING, step=step))
    watched = Watched()
    for tries in range(50):
        assert watched.look(facts(state=FlowState.PREPARING, step=step, tries=tries)) in (None, Remedy.NONE)
    assert watched.is_stalled


def test_a_blocked_target_and_a_wait_for_a_turn_are_reported_and_not_restarted() -> None:
    """Fetched batches are kept for such a target: a restart would drop them."""
    watched = Watched()
    assert watched.look_for(20, facts(state=FlowState.PREPARING)) == []
    assert watched.is_stalled
    watched = Watched()
    assert watched.look_for(20, facts(), is_congested=True) == []
    assert watched.is_stalled


@pytest.mark.parametrize(
    "state", [FlowState.PAUSED, FlowState.GAP, FlowState.FAULTED, FlowState.RESET, FlowState.PROMOTED]
)
def test_states_that_wait_for_a_person_or_a_link_are_not_stalls(state: FlowState) -> None:
    assert Watched().look_for(5, facts(state=state)) == []


def test_partitions_that_are_gone_are_forgotten() -> None:
    watched = Watched()
    watched.look_for(3, facts())
    watched.liveness.keep(frozenset())
    assert not watched.is_stalled
