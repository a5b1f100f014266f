"""Answers to ListOffsets: of a new leader before it knows the high watermark that the former one
had reported to clients, and to times that have no meaning.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.records import list_offsets
from broker.log.errors import StorageError
from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.partition import Partition

LATEST, EARLIEST = -1, -2


class Log(SimpleNamespace):
    """A log from 2 to 10."""

    log_start_offset, log_end_offset, latest_epoch = 2, 10, 3

    def epoch_at(self, _: int) -> int:
        return 1

    def offset_for_timestamp(self, _: int) -> None:
        return None

    def offset_of_max_timestamp(self) -> None:
        return None


def answer(
    timestamp_ms: int,
    *,
    followers_have: int,
    version: int = 5,
    replica_id: int = -1,
    log: Log | None = None,
    failures: list[StorageError] | None = None,
) -> Any:
    state = Partition(node_id=1, log_end_offset=10, high_watermark=4)
    state.change(
        PartitionImage(index=0, leader=1, leader_epoch=3, partition_epoch=1, replicas=(1, 2), isr=(1, 2)), now_ms=0
    )
    state.record_fetch(2, followers_have, now_ms=1)
    hosted = SimpleNamespace(
        state=state,
        log=log or Log(),
        check_readable=lambda _: None,
        check_leader_epoch=lambda _: None,
        readable_end=lambda **_: state.high_watermark,
    )
    build = list_offsets.builder(list_offsets.API_KEY, version)
    failures = [] if failures is None else failures
    doors: Any = SimpleNamespace(replicas=SimpleNamespace(get=lambda *_: hosted, storage_failed=failures.append))
    asked = SimpleNamespace(partition_index=0, timestamp=timestamp_ms, current_leader_epoch=-1)
    request = SimpleNamespace(replica_id=replica_id, isolation_level=0)
    return list_offsets._partition(doors, None, build, request, "t", asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("timestamp_ms", [LATEST, 1_700_000_000_000])
def test_the_end_is_not_reported_while_it_might_go_back(timestamp_ms: int) -> None:
    found = answer(timestamp_ms, followers_have=7)
    assert (found.error_code, found.offset) == (ErrorCode.offset_not_available, -1)
    assert answer(timestamp_ms, followers_have=7, version=4).error_code is ErrorCode.leader_not_available


def test_the_start_is_reported_immediately_and_the_end_when_followers_have_the_leaders_first_records() -> None:
    assert answer(EARLIEST, followers_have=7).offset == 2
    assert answer(LATEST, followers_have=10).offset == 10


def test_tools_get_the_end_that_followers_have() -> None:
    assert answer(LATEST, followers_have=7, replica_id=-2).offset == 7


def test_the_end_comes_with_the_epoch_of_the_record_before_it() -> None:
    """M1: with the epoch of the log's end a mirror would compare histories at an offset that this
    epoch never had.
    """
    assert answer(LATEST, followers_have=7, replica_id=-2).leader_epoch == 1
    assert answer(LATEST, followers_have=10).leader_epoch == 3


def test_an_error_of_the_disk_is_reported_for_its_directory() -> None:
    failure = StorageError("reading", "/one/t-0/0.timeindex", "Input/output error")

    class Unreadable(Log):
        def offset_for_timestamp(self, _: int) -> None:
            raise failure

    failures: list[StorageError] = []
    found = answer(1_700_000_000_000, followers_have=10, log=Unreadable(), failures=failures)
    assert (found.error_code, failures) == (ErrorCode.kafka_storage_error, [failure])


@pytest.mark.parametrize(
    ("timestamp_ms", "known_from"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12), (-(2**63), 12)]
)
def test_a_time_below_zero_without_a_meaning_finds_no_record(timestamp_ms: int, known_from: int) -> None:
    for version in range(1, 12):
        found = answer(timestamp_ms, followers_have=10, version=version)
        is_known = version >= known_from
        assert (found.error_code is ErrorCode.unsupported_version) is not is_known
        assert is_known or found.offset == -1


async def test_a_partition_that_is_named_twice_is_refused_each_time() -> None:
    hosted = SimpleNamespace(
        state=SimpleNamespace(high_watermark=10, leader_epoch_start_offset=0),
        log=Log(),
        check_readable=lambda _: None,
        check_leader_epoch=lambda _: None,
        readable_end=lambda **_: 10,
    )
    doors: Any = SimpleNamespace(replicas=SimpleNamespace(get=lambda *_: hosted), cluster=SimpleNamespace(image=None))
    parts = [
        SimpleNamespace(partition_index=index, timestamp=time, current_leader_epoch=-1)
        for index, time in ((0, LATEST), (1, LATEST), (0, EARLIEST))
    ]
    # the second entry of a topic counts as well
    topics = [SimpleNamespace(name="t", partitions=parts[:2]), SimpleNamespace(name="t", partitions=parts[2:])]
    request = SimpleNamespace(replica_id=-1, isolation_level=0, topics=topics)
    context: Any = SimpleNamespace(api_version=5)
    found = [part for topic in (await list_offsets.handle(request, context, doors)).topics for part in topic.partitions]
    refused = (ErrorCode.invalid_request, -1)
    assert [(part.error_code, part.offset) for part in found] == [refused, (ErrorCode.none, 10), refused]
