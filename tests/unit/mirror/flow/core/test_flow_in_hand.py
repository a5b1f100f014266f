"""Batches that were fetched and are on their way to the target: no state drops them, and refused
ones are not lost (M1, M9).
"""

from __future__ import annotations

import pytest

from mirror.flow.core.flow import Flow
from mirror.flow.core.flow_decisions import Decision
from mirror.flow.core.flow_effects import CheckSource, Discard, Fetch, RefreshLink
from mirror.flow.core.flow_events import (
    Acknowledged,
    BatchesFetched,
    Command,
    FetchFailed,
    NotEnqueued,
    RetryDue,
    Settled,
    SourceChecked,
    SourceLeaderChanged,
    SourceTrouble,
    Start,
    TargetFound,
    TopicAgrees,
    TopicHidden,
)
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.link_roles import GapPolicy
from mirror.link.core.partitions import BatchRun


class Streaming:
    """A flow whose target ends at 200, and that has just been given the batches from there to
    300.
    """

    def __init__(self, gap_policy: GapPolicy = GapPolicy.HALT) -> None:
        self.flow = Flow("orders-0", gap_policy=gap_policy)
        self.tell(Start())
        self.tell(Settled(generation=self.generation))
        self.tell(TargetFound(generation=self.generation, log_start_offset=0, log_end_offset=200, last_epoch=0))
        self.check_source(log_start=0)
        self.before = self.flow.facts
        run = BatchRun(
            first_offset=200,
            next_offset=300,
            size_bytes=1,
            record_count=100,
            first_epoch=1,
            last_epoch=1,
            max_timestamp_ms=-1,
        )
        self.tell(
            BatchesFetched(
                generation=self.generation, fetch_offset=199, run=run, high_watermark=900, log_start_offset=0
            )
        )

    @property
    def generation(self) -> int:
        return self.flow.facts.generation

    def tell(self, command: Command) -> Decision:
        decision = self.flow.decide(command, 1_000)
        self.flow.apply(decision.facts)
        self.flow.check_invariants()
        return decision

    def check_source(self, *, log_start: int, epoch: int = 0, epoch_end: int = 200) -> Decision:
        return self.tell(
            SourceChecked(
                generation=self.generation,
                log_start_offset=log_start,
                high_watermark=900,
                epoch=epoch,
                epoch_end_offset=epoch_end,
            )
        )

    def find_no_room(self) -> Decision:
        return self.tell(
            NotEnqueued(
                generation=self.generation,
                offset=self.before.chain_offset,
                epoch=self.before.chain_epoch,
                restart_offset=self.before.restart_offset,
                rereads_last_batch=self.before.rereads_last_batch,
            )
        )

    def lose_source(self) -> None:
        self.tell(
            FetchFailed(generation=self.generation, trouble=SourceTrouble.UNREACHABLE, reason="it does not answer")
        )


def test_batches_without_room_while_the_source_was_away_are_fetched_again() -> None:
    streaming = Streaming()
    streaming.lose_source()
    streaming.find_no_room()
    (check,) = streaming.tell(RetryDue(generation=streaming.generation)).effects
    assert check == CheckSource(generation=streaming.generation, epoch=0)
    assert Fetch(generation=streaming.generation, offset=199) in streaming.check_source(log_start=0).effects


def test_batches_without_room_while_the_source_was_being_asked_are_fetched_again() -> None:
    streaming = Streaming()
    streaming.tell(SourceLeaderChanged(reason="another leader"))
    asked = streaming.generation
    streaming.find_no_room()
    assert streaming.generation > asked, "an answer about the former end would count as one about this end"


@pytest.mark.parametrize("gap_policy", GapPolicy)
def test_records_that_expired_behind_what_is_in_hand_do_not_give_it_up(gap_policy: GapPolicy) -> None:
    streaming = Streaming(gap_policy)
    streaming.lose_source()
    streaming.tell(RetryDue(generation=streaming.generation))
    decision = streaming.check_source(log_start=500, epoch=1, epoch_end=900)
    assert not any(isinstance(effect, Discard | Fetch) for effect in decision.effects)
    if gap_policy is GapPolicy.HALT:
        assert streaming.flow.facts.state is FlowState.GAP
        assert "200 offsets expired before they were mirrored" in streaming.flow.facts.reason
    streaming.tell(Acknowledged(generation=streaming.generation, log_end_offset=300))
    streaming.tell(RetryDue(generation=streaming.generation))
    decision = streaming.check_source(log_start=500, epoch=1, epoch_end=900)
    if gap_policy is GapPolicy.SKIP:
        assert Fetch(generation=streaming.generation, offset=500) in decision.effects
        assert streaming.flow.facts.skipped_records == 200


def test_a_topic_that_the_source_hides_is_not_fetched_and_what_came_of_it_before_is_delivered() -> None:
    mirror = Streaming()
    hidden = mirror.tell(TopicHidden(reason="hidden"))
    assert not [effect for effect in hidden.effects if isinstance(effect, Discard)]
    mirror.tell(TopicHidden(reason="hidden"))
    mirror.tell(Start())
    assert mirror.flow.facts.state is FlowState.SOURCE_UNAVAILABLE
    mirror.tell(
        Acknowledged(
            generation=mirror.generation, log_end_offset=300, size_bytes=1, record_count=100, max_timestamp_ms=-1
        )
    )
    assert mirror.flow.facts.progress.target_log_end_offset == 300
    mirror.tell(TopicAgrees())
    mirror.tell(Settled(generation=mirror.generation))
    mirror.tell(TargetFound(generation=mirror.generation, log_start_offset=0, log_end_offset=300, last_epoch=1))
    going_on = mirror.check_source(log_start=0, epoch=1, epoch_end=300)
    assert [effect.offset for effect in going_on.effects if isinstance(effect, Fetch)] == [299]
    assert mirror.flow.facts.state is FlowState.MIRRORING


def test_a_source_that_no_longer_leads_makes_the_mirror_read_the_link() -> None:
    """Its site may have become the passive one, and then thousands of flows would ask in vain."""
    streaming = Streaming()
    moved = FetchFailed(generation=streaming.generation, trouble=SourceTrouble.MOVED, reason="another leader")
    assert RefreshLink() in streaming.tell(moved).effects


def test_another_leader_of_the_source_ends_a_wait() -> None:
    streaming = Streaming()
    streaming.lose_source()
    (check,) = streaming.tell(SourceLeaderChanged(reason="another leader")).effects
    assert check == CheckSource(generation=streaming.generation, epoch=1)
    # the time of the other attempt comes while the source is asked
    assert streaming.tell(RetryDue(generation=streaming.generation)).effects == ()
