"""The replication machine under random commands: its invariants hold after each of them, and its
high watermark is that of a naive model.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.partition import LeadershipChange
from broker.replication.core.partition_effects import HighWatermarkMoved, IsrProposed, MirrorableEndMoved
from broker.replication.core.standby_terms import StandbyTerms
from tests.support.memory.checked_partition import CheckedPartition

REPLICAS = (1, 2, 3)
LAG_MS_MAX = 50.0
EPOCHS = dict.fromkeys(REPLICAS, 7)


class OneReplica(RuleBasedStateMachine):
    """Broker 1 of three, led by each of them in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = CheckedPartition(node_id=1, insync_replicas_min=2)
        self.leader_epoch = self.partition_epoch = 0
        self.now_ms = 0.0
        self.fetched: dict[int, int] = {}
        """What followers are known to have under this leadership."""
        self.former = (0, 0)
        """Leader epoch and mirrorable end after the former command."""

    def _image(self, leader: int, isr: frozenset[int]) -> PartitionImage:
        self.partition_epoch += 1
        in_sync = tuple(node for node in REPLICAS if node == leader or node in isr)
        return PartitionImage(
            index=0,
            leader=leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            replicas=REPLICAS,
            isr=in_sync,
        )

    @rule(
        leader=st.sampled_from(REPLICAS),
        isr=st.frozensets(st.sampled_from(REPLICAS)),
        is_held=st.booleans(),
    )
    def elect(self, leader: int, isr: frozenset[int], *, is_held: bool) -> None:
        self.leader_epoch += 1
        self.fetched.clear()
        terms = StandbyTerms(may_degrade=True, timeout_ms=100) if is_held else None
        self.partition.change(self._image(leader, isr), now_ms=self.now_ms, terms=terms)

    @rule(isr=st.frozensets(st.sampled_from(REPLICAS)))
    def answer_of_the_controller(self, isr: frozenset[int]) -> None:
        if self.leader_epoch:
            self.partition.change(self._image(self.partition.leader, isr), now_ms=self.now_ms)

    @precondition(lambda self: self.leader_epoch > 1)
    @rule(leader=st.sampled_from(REPLICAS))
    def late_image(self, leader: int) -> None:
        before = (self.partition.leader, self.partition.isr)
        late = PartitionImage(
            index=0, leader=leader, leader_epoch=self.leader_epoch - 1, partition_epoch=99, replicas=(1,), isr=(1,)
        )
        assert self.partition.change(late, now_ms=self.now_ms)[0] is LeadershipChange.STALE
        assert (self.partition.leader, self.partition.isr) == before

    @rule(records=st.integers(1, 5))
    def append(self, records: int) -> None:
        self.partition.record_append(self.partition.log_end_offset + records)

    @precondition(lambda self: self.partition.is_leader)
    @rule(replica=st.sampled_from((2, 3)), missing=st.integers(0, 3), passed_ms=st.integers(0, 80))
    def fetch(self, replica: int, missing: int, passed_ms: int) -> None:
        self.now_ms += passed_ms
        offset = max(self.partition.log_end_offset - missing, 0)
        self.fetched[replica] = offset
        self.partition.record_fetch(replica, offset, now_ms=self.now_ms, broker_epoch=7)

    @rule(replica=st.sampled_from((2, 3)))
    def consider(self, replica: int) -> None:
        self.partition.consider(replica, EPOCHS, lag_ms_max=LAG_MS_MAX)

    @rule(passed_ms=st.integers(0, 200))
    def look_for_laggards(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.partition.drop_joining(EPOCHS, now_ms=self.now_ms, lag_ms_max=LAG_MS_MAX)
        effects = self.partition.shrink_isr(now_ms=self.now_ms, lag_ms_max=LAG_MS_MAX)
        proposed = [effect.isr for effect in effects if isinstance(effect, IsrProposed)]
        assert proposed == ([self.partition.proposed_isr] if effects else [])

    @precondition(lambda self: self.partition.proposed_isr is not None)
    @rule(refused=st.sampled_from((None, 2, 3)))
    def refuse(self, refused: int | None) -> None:
        self.partition.withdraw_proposal()
        if refused is not None:
            self.partition.refuse(refused, 7, now_ms=self.now_ms)

    @rule(behind=st.integers(0, 4), passed_ms=st.integers(0, 200))
    def standby(self, behind: int, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.partition.record_standby(max(self.partition.mirrorable_end - behind, 0), now_ms=self.now_ms)
        self.partition.check_standby(now_ms=self.now_ms)

    @rule(length=st.integers(0, 30))
    def truncate(self, length: int) -> None:
        offset = min(length, self.partition.log_end_offset)
        if self.partition.is_leader:
            self.partition.record_copy_truncation(offset)
            self.fetched = {replica: min(end, offset) for replica, end in self.fetched.items()}
        else:
            self.partition.record_truncation(offset)

    @rule(high_watermark=st.integers(0, 60))
    def follow(self, high_watermark: int) -> None:
        self.partition.follow_high_watermark(high_watermark)

    @rule(least=st.integers(1, 4))
    def configure(self, least: int) -> None:
        self.partition.require_in_sync(least)

    @precondition(lambda self: self.partition.is_leader)
    @rule(records=st.integers(1, 3), is_done=st.booleans())
    def append_and_flush(self, records: int, *, is_done: bool) -> None:
        first = self.partition.log_end_offset
        self.partition.await_flush(first, first + records)
        effects = self.partition.record_append(first + records)
        moved = [one for one in effects if isinstance(one, HighWatermarkMoved | MirrorableEndMoved)]
        assert all(one.offset <= first for one in moved), "not before it is on disk"
        self.partition.record_flush(first + records, is_done=is_done)

    @invariant()
    def no_more_is_safe_than_all_that_may_be_in_sync_have(self) -> None:
        """Followers whose membership is only proposed (KIP-497) count too."""
        partition = self.partition
        if not partition.is_leader or not partition.has_enough_in_sync:
            return
        counted = {*partition.isr, *(partition.proposed_isr or ()), *partition.joining} - {1}
        least = min([partition.log_end_offset, *(self.fetched.get(replica, -1) for replica in counted)])
        former, self.former = self.former, (partition.leader_epoch, partition.mirrorable_end)
        if former[0] == partition.leader_epoch and partition.mirrorable_end > former[1]:
            assert partition.mirrorable_end <= least
        if partition.flushed_end is None:
            assert partition.mirrorable_end >= least, "nothing keeps it back"


TestOneReplica = OneReplica.TestCase
TestOneReplica.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
