"""A leader with other replicas in sync refuses a sequence as out of order only after it has proof
that it still leads.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSession
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import HostedPartition
from broker.replication.sequence_gaps import SequenceGaps
from broker.replication.tracked_sessions import TrackedSessions
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import open_log

OWN, FOLLOWER, OTHER = 1, 2, 3
PRODUCER = 7
LEADER_EPOCH = 4


class Leader:
    """One partition's leader, and the fetches of its followers."""

    def __init__(self, directory: Path, isr: tuple[int, ...]) -> None:
        self.state = Partition(node_id=OWN)
        image = PartitionImage(
            index=0, leader=OWN, leader_epoch=LEADER_EPOCH, partition_epoch=1, replicas=(1, 2, 3), isr=isr
        )
        self.state.change(image, now_ms=0)
        self.hosted = HostedPartition(
            topic="t",
            topic_id=bytes(16),
            index=0,
            log=open_log(directory),
            state=self.state,
            config=LogConfig(),
            metrics=TopicMetrics(),
        )
        self.fetches = TrackedSessions()
        self.gaps = SequenceGaps(self.fetches)
        self.sessions: dict[int, FetchSession] = {}

    def fetch(self, follower: int, *, leader_epoch: int = LEADER_EPOCH, session_id: int = 1) -> None:
        """Fetches as a follower, in the session of this id."""
        known = self.sessions.get(follower)
        wanted = FetchPartitionState(
            topic="t", partition=0, fetch_offset=0, partition_max_bytes=100, current_leader_epoch=leader_epoch
        )
        if known is None or known.session_id != session_id:
            known = FetchSession(session_id=session_id, has_topic_ids=False, used_at_ms=session_id, follower=follower)
            known.ask([wanted], ())
            self.fetches.watch(known, wanted, self.hosted)
            self.sessions[follower] = known
        known.epoch += 1

    def produce(self, sequence: int, *, epoch: int = 0) -> ErrorCode:
        """Produces one record; returns the answer."""
        content = batch([b"r"], producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence)
        try:
            self.hosted.log.append_as_leader(content, leader_epoch=LEADER_EPOCH, now_ms=0)
        except BatchRejected as refused:
            judged = self.gaps.judged(self.hosted, refused)
            assert isinstance(judged, BatchRejected)
            return judged.code
        return ErrorCode.none


@pytest.fixture
async def leader(tmp_path: Path) -> Leader:
    made = Leader(tmp_path, (OWN, FOLLOWER))
    made.fetch(FOLLOWER)
    assert made.produce(0) is ErrorCode.none
    return made


async def test_a_leader_without_followers_makes_the_producer_repeat_the_batch(leader: Leader) -> None:
    assert [leader.produce(2) for _ in range(3)] == [ErrorCode.not_enough_replicas] * 3


@pytest.mark.parametrize(("sequence", "epoch"), [(2, 0), (2, 1)])
async def test_two_fetches_of_each_replica_in_sync_are_proof(leader: Leader, sequence: int, epoch: int) -> None:
    assert leader.produce(sequence, epoch=epoch) is ErrorCode.not_enough_replicas
    leader.fetch(FOLLOWER)  # it may have been sent before the batch
    assert leader.produce(sequence, epoch=epoch) is ErrorCode.not_enough_replicas
    leader.fetch(FOLLOWER)
    assert leader.produce(sequence, epoch=epoch) is ErrorCode.out_of_order_sequence_number


async def test_a_new_session_counts_from_its_second_fetch(leader: Leader) -> None:
    leader.produce(2)
    leader.fetch(FOLLOWER, session_id=2)
    assert leader.produce(2) is ErrorCode.not_enough_replicas
    leader.fetch(FOLLOWER, session_id=2)
    assert leader.produce(2) is ErrorCode.out_of_order_sequence_number


async def test_a_session_without_the_partition_proves_nothing(leader: Leader) -> None:
    leader.produce(2)
    leader.sessions[FOLLOWER].ask((), [("t", 0)])
    leader.fetch(FOLLOWER)
    leader.fetch(FOLLOWER)
    assert leader.produce(2) is ErrorCode.not_enough_replicas


async def test_followers_of_another_epoch_prove_nothing(leader: Leader) -> None:
    leader.produce(2)
    for _ in range(3):
        leader.fetch(FOLLOWER, leader_epoch=LEADER_EPOCH + 1, session_id=2)
    assert leader.produce(2) is ErrorCode.not_enough_replicas


async def test_replicas_that_may_be_in_sync_have_to_fetch_too(leader: Leader) -> None:
    leader.state.propose_isr((OWN, FOLLOWER, OTHER))
    leader.produce(2)
    leader.fetch(FOLLOWER)
    leader.fetch(FOLLOWER)
    assert leader.produce(2) is ErrorCode.not_enough_replicas
    leader.fetch(OTHER)
    leader.fetch(OTHER)
    assert leader.produce(2) is ErrorCode.out_of_order_sequence_number


async def test_a_later_gap_needs_proof_of_its_own(leader: Leader) -> None:
    leader.produce(2)
    leader.fetch(FOLLOWER)
    leader.fetch(FOLLOWER)
    assert leader.produce(1) is ErrorCode.none
    assert leader.produce(3) is ErrorCode.not_enough_replicas


async def test_a_leader_that_is_alone_in_sync_needs_no_proof(tmp_path: Path) -> None:
    leader = Leader(tmp_path, (OWN,))
    assert leader.produce(0) is ErrorCode.none
    assert leader.produce(2) is ErrorCode.out_of_order_sequence_number


async def test_other_refusals_stay_as_they_are(leader: Leader) -> None:
    assert leader.produce(0, epoch=2) is ErrorCode.none
    assert leader.produce(1, epoch=1) is ErrorCode.invalid_producer_epoch
