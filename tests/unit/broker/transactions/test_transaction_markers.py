"""Markers in partitions led here: one that was here before is done only when it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from broker.log.intake import AppendInfo
from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.verification_guards import VerificationGuards
from broker.replication.core.wake_ups import Change
from broker.replication.hosted_partition import PartitionFailure
from broker.replication.purgatory import Purgatory
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_markers import TransactionMarkers
from runtime.clock import SystemClock
from tests.support.disks.logs_on_disk import open_log
from tests.support.eventually import eventually
from wire.batches.record_batch import TRANSACTIONAL_BIT, iterate_headers
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition

T0 = TopicPartition("t", 0)
END = TransactionEnd(producer_id=7, producer_epoch=1, is_commit=True, coordinator_epoch=1, transaction_version=2)


@dataclass
class State:
    """The state of a partition; its follower sets the high watermark."""

    high_watermark: int = 0
    is_leader: bool = True
    led_since_epoch: int = 1


class Hosted:
    """The part of a hosted partition that markers use."""

    def __init__(self, directory: Path) -> None:
        self.topic, self.index, self.key = *T0, T0
        self.state = State()
        self.guards = VerificationGuards()
        self.log = open_log(directory)

    def check_writable(self, _acks: int, *, passes_fence: bool) -> None:
        """The partition is always writable."""


class OnePartition:
    """The replicas of a broker that hosts one partition."""

    def __init__(self, hosted: Hosted) -> None:
        self.hosted = hosted
        self.purgatory = Purgatory(SystemClock())
        self.append_count = 0

    def get(self, _image: ClusterImage, _topic: str, _index: int) -> Hosted:
        """Returns the partition."""
        return self.hosted

    def append(self, hosted: Hosted, records: bytes, **_: Any) -> AppendInfo:
        """Appends as the leader does."""
        self.append_count += 1
        return hosted.log.append_as_leader(records, leader_epoch=0, now_ms=1, is_from_client=False)

    def follow(self, offset: int) -> None:
        """The follower has everything below the offset."""
        self.hosted.state.high_watermark = offset
        self.purgatory.changed(self.hosted.key, Change.HIGH_WATERMARK)


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path)
    yield made
    made.log.close()


async def test_a_marker_that_was_here_before_is_done_when_the_followers_have_it(hosted: Hosted) -> None:
    """Its coordinator calls the transaction complete then; if the leader died, one without the
    marker would keep it open for ever.
    """
    replicas = OnePartition(hosted)
    image = ClusterImage(node_id=1, site="a")
    markers = TransactionMarkers(lambda: image, cast("Any", replicas), cast("Any", None), SystemClock())
    records = [Record(b"", b"value", 1)]
    hosted.log.append_as_leader(
        encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT),
        leader_epoch=0,
        now_ms=1,
    )
    first = asyncio.ensure_future(markers.write(END, [T0]))
    await eventually(lambda: hosted.log.log_end_offset == 2)
    first.cancel()  # its coordinator has moved away
    await asyncio.gather(first, return_exceptions=True)
    again = asyncio.ensure_future(markers.write(END, [T0]))
    done, _ = await asyncio.wait([again], timeout=0.05)
    assert not done
    replicas.follow(2)
    assert await again == {T0: ErrorCode.invalid_producer_epoch}
    assert await markers.write(END, [T0]) == {T0: ErrorCode.invalid_producer_epoch}
    assert hosted.log.log_end_offset == 2


def begin_transaction(hosted: Hosted, producer_id: int) -> None:
    """A record of a transaction that is open from here on."""
    records = [Record(b"", b"value", 1)]
    hosted.log.append_as_leader(
        encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT),
        leader_epoch=0,
        now_ms=1,
    )


async def test_transactions_that_end_in_one_turn_of_the_event_loop_share_an_append(hosted: Hosted) -> None:
    """Each ends by a marker of its own, and the partition is written to once."""
    replicas = OnePartition(hosted)
    hosted.state.high_watermark = 100
    image = ClusterImage(node_id=1, site="a")
    markers = TransactionMarkers(lambda: image, cast("Any", replicas), cast("Any", None), SystemClock())
    for producer_id in (7, 8, 9):
        begin_transaction(hosted, producer_id)
    ended = await asyncio.gather(*(markers.write(END._replace(producer_id=one), [T0]) for one in (7, 8, 9)))
    assert list(ended) == [{T0: ErrorCode.none}] * 3
    assert replicas.append_count == 1
    assert hosted.log.log_end_offset == 6
    assert not hosted.log.producers.open_transactions()


class OneMarkerAtATime(OnePartition):
    """A log that refuses several batches in one append, and one producer's marker."""

    def append(self, hosted: Hosted, records: bytes, **_: Any) -> AppendInfo:
        """Appends as the leader does, unless the log refuses the batches."""
        headers = [header for _, header in iterate_headers(records)]
        if len(headers) > 1:
            raise PartitionFailure(ErrorCode.record_list_too_large)
        if headers[0].producer_id == 8:
            raise PartitionFailure(ErrorCode.invalid_producer_epoch)
        return super().append(hosted, records)


async def test_a_marker_that_is_refused_does_not_delay_the_others_of_its_append(hosted: Hosted) -> None:
    """An append is all or nothing; here the markers follow one by one."""
    replicas = OneMarkerAtATime(hosted)
    hosted.state.high_watermark = 100
    image = ClusterImage(node_id=1, site="a")
    markers = TransactionMarkers(lambda: image, cast("Any", replicas), cast("Any", None), SystemClock())
    for producer_id in (7, 8, 9):
        begin_transaction(hosted, producer_id)
    ended = await asyncio.gather(*(markers.write(END._replace(producer_id=one), [T0]) for one in (7, 8, 9)))
    assert [one[T0] for one in ended] == [ErrorCode.none, ErrorCode.invalid_producer_epoch, ErrorCode.none]
    assert [entry.producer_id for entry in hosted.log.producers.open_transactions()] == [8]


async def test_two_markers_of_one_producer_in_one_turn_are_judged_one_after_the_other(hosted: Hosted) -> None:
    """The second finds the first in the log, as if it had come later."""
    replicas = OnePartition(hosted)
    hosted.state.high_watermark = 100
    image = ClusterImage(node_id=1, site="a")
    markers = TransactionMarkers(lambda: image, cast("Any", replicas), cast("Any", None), SystemClock())
    begin_transaction(hosted, 7)
    ended = await asyncio.gather(markers.write(END, [T0]), markers.write(END, [T0]))
    assert [one[T0] for one in ended] == [ErrorCode.none, ErrorCode.invalid_producer_epoch]
    assert hosted.log.log_end_offset == 2
