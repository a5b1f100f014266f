"""The poll loop on partitions assigned by hand, against scripted brokers (rows NC-01 to NC-16,
FT-08 to FT-10).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from clients.consumer.consumer import AlreadyPolling, Consumer, NothingSubscribed, WokenUp
from clients.consumer.consumer_options import ConsumerOptions
from clients.reader.core.positions import LogTruncated, Position, PositionLost, ResetPolicy
from clients.reader.core.readings import Phase, Start
from clients.reader.reader_options import DamagedLog, ReaderOptions
from tests.support.clients.consumer_reads import FROM_0, P0, P1, consuming, numbers, read, read_on
from tests.support.clients.scripted_cluster import EPOCH_ENDS, FETCH, LIST_OFFSETS, ScriptedCluster
from tests.support.disks.log_batches import marker
from tests.support.eventually import eventually
from wire.batches.record_batch import TRANSACTIONAL_BIT, InvalidBatch
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import READ_COMMITTED, PartitionKey


def fetchers(consumer: Consumer) -> list[str]:
    """The number and the broker of each fetcher."""
    return [name.removeprefix("ConsumerFetcherThread-consumer-") for name in consumer.reader.fetcher_names]


async def test_polling_without_a_subscription_or_twice_at_once_is_refused() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        with pytest.raises(NothingSubscribed):
            await consumer.poll(0)
        with pytest.raises(ValueError, match="group id"):
            consumer.subscribe(["t"])
        consumer.assign({P0: FROM_0})
        polling = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0)
        with pytest.raises(AlreadyPolling):
            await consumer.poll(0)
        consumer.wakeup()
        with pytest.raises(WokenUp):
            await polling


async def test_poll_of_0_returns_at_once_and_finds_what_was_prefetched_meanwhile() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 10)
        consumer.assign({P0: FROM_0})
        assert await consumer.poll(0) == []
        await eventually(lambda: consumer._prefetch.used_bytes > 0)
        assert numbers(consumer, await consumer.poll(0))[:1] == [0]


async def test_everything_comes_in_order_from_every_broker() -> None:
    async with ScriptedCluster(nodes=3, partitions=6) as cluster, consuming(cluster) as consumer:
        for partition in range(6):
            cluster.fill(partition, 40, batch=4)
        consumer.assign({("t", partition): FROM_0 for partition in range(6)})
        found: dict[int, list[int]] = {}
        while sum(map(len, found.values())) < 240:
            for chunk in await consumer.poll(1000):
                found.setdefault(chunk.place[1], []).extend(numbers(consumer, [chunk]))
        assert all(part == list(range(40)) for part in found.values())
        assert fetchers(consumer) == ["0-1", "0-2", "0-3"]


async def test_prefetch_is_bounded_in_bytes() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster, prefetch_bytes=1000) as consumer:
        cluster.fill(0, 500)
        consumer.assign({P0: FROM_0})
        await eventually(lambda: consumer._prefetch.used_bytes > 600)
        for _ in range(20):
            await asyncio.sleep(0)
        assert consumer._prefetch.used_bytes <= 1000
        assert await read(consumer, 500) == list(range(500))


@pytest.mark.parametrize("poll_records_max", [1, 3, 7, 500])
async def test_a_poll_returns_no_more_records_than_it_may_however_they_are_batched(poll_records_max: int) -> None:
    async with ScriptedCluster() as cluster, consuming(cluster, poll_records_max=poll_records_max) as consumer:
        cluster.fill(0, 100, batch=10)
        cluster.fill(0, 20, first=100)
        consumer.assign({P0: FROM_0})
        found: list[int] = []
        while len(found) < 120:
            polled = numbers(consumer, await consumer.poll(1000))
            assert len(polled) <= poll_records_max
            found += polled
            assert consumer.positions()[P0].offset == len(found), "what is committed now is what has been returned"
        assert found == list(range(120))
        assert consumer._prefetch.used_bytes == 0


async def test_an_aborted_transaction_stays_left_out_when_polls_split_it() -> None:
    async with ScriptedCluster() as cluster:
        aborted = [Record(None, b"%d" % number, 1000) for number in range(5)]
        cluster.logs[0].append(encode_batch(aborted, producer_id=7, base_sequence=0, attributes=TRANSACTIONAL_BIT))
        cluster.logs[0].append(marker(producer_id=7, is_commit=False))
        committed = [Record(None, b"%d" % number, 1000) for number in range(5, 10)]
        cluster.logs[0].append(encode_batch(committed, producer_id=7, base_sequence=5, attributes=TRANSACTIONAL_BIT))
        cluster.logs[0].append(marker(producer_id=7, is_commit=True))
        cluster.aborted_transactions = [(7, 0)]
        reader = ReaderOptions(max_wait_ms=20, leader_backoff_ms=5, isolation_level=READ_COMMITTED)
        options = ConsumerOptions(is_auto_commit=False, reader=reader, poll_records_max=2)
        async with Consumer(lambda: KafkaClient(cluster.bootstrap, retry_budget_ms=2000), options) as consumer:
            consumer.assign({P0: FROM_0})
            assert await read(consumer, 5) == [5, 6, 7, 8, 9]


async def test_no_wakeup_loses_records() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 50)
        consumer.assign({P0: FROM_0})
        found: list[int] = []
        while len(found) < 50:
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await consumer.poll(1000)
            found += numbers(consumer, await consumer.poll(1000))
        assert found == list(range(50))


async def test_a_paused_partition_gives_nothing_and_loses_nothing() -> None:
    async with ScriptedCluster(partitions=2) as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 30)
        cluster.fill(1, 30, first=100)
        consumer.assign({P0: FROM_0, P1: FROM_0})
        await eventually(lambda: consumer._prefetch.used_bytes > 0)
        consumer.pause([P0])
        assert sorted(await read(consumer, 30)) == list(range(100, 130))
        consumer.resume([P0])
        assert await read(consumer, 30) == list(range(30))


async def test_seeking_drops_what_was_prefetched() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 50)
        consumer.assign({P0: FROM_0})
        await eventually(lambda: consumer._prefetch.used_bytes > 0)
        consumer.seek(P0, Start(Position(40)))
        assert await read(consumer, 10) == list(range(40, 50))
        consumer.seek(P0, Start(timestamp=1045))
        assert await read(consumer, 5) == list(range(45, 50))
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek(P1, FROM_0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(ResetPolicy.EARLIEST, [5, 6]), (ResetPolicy.LATEST, [20, 21]), (ResetPolicy.NEAREST, [5, 6])],
)
async def test_a_position_that_is_gone_is_reset_by_the_policy(policy: ResetPolicy, expected: list[int]) -> None:
    async with ScriptedCluster() as cluster, consuming(cluster, policy) as consumer:
        cluster.fill(0, 20)
        cluster.logs[0].expire(5)
        consumer.assign({P0: Start(Position(2))})
        await eventually(lambda: cluster.count(LIST_OFFSETS) >= 2)
        await eventually(lambda: consumer.positions()[P0].offset != 2 or None)
        cluster.fill(0, 20, first=20)
        assert (await read(consumer, 2))[:2] == expected
        assert consumer.reader.skipped_offsets == {P0: expected[0] - 2}


async def test_offsets_that_are_read_again_after_a_reset_are_not_counted_as_skipped() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster, ResetPolicy.EARLIEST) as consumer:
        cluster.fill(0, 10)
        consumer.assign({P0: Start(Position(30))})
        assert await read(consumer, 10) == list(range(10))
        assert consumer.reader.skipped_offsets == {P0: 0}


async def test_without_a_policy_a_lost_position_is_reported_and_can_be_sought() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 20)
        cluster.logs[0].expire(5)
        consumer.assign({P0: Start(Position(2))})
        with pytest.raises(PositionLost, match="offset 2 is not in the log, which is 5 to 20"):
            await consumer.poll(5000)
        consumer.seek(P0, Start(Position(5)))
        assert await read(consumer, 15) == list(range(5, 20))


async def test_without_a_policy_and_a_start_there_is_no_position() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        consumer.assign({P0: Start()})
        with pytest.raises(PositionLost, match="no committed offset"):
            await consumer.poll(5000)


async def test_a_leader_that_moves_is_found_and_nothing_is_skipped() -> None:
    async with ScriptedCluster(nodes=2) as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 60)
        consumer.assign({P0: FROM_0})
        found = await read(consumer, 10)
        cluster.move(0, 2)
        cluster.fill(0, 60, first=60)
        found += await read(consumer, 120 - len(found))
        assert found == list(range(120))
        await eventually(lambda: fetchers(consumer) == ["0-2"])
        assert cluster.count(EPOCH_ENDS) >= 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_server_error,
        ErrorCode.fenced_leader_epoch,
    ],
)
async def test_errors_that_pass_cost_nothing_but_time(code: ErrorCode) -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 20)
        cluster.fail(FETCH, code, code)
        consumer.assign({P0: FROM_0})
        assert await read(consumer, 20) == list(range(20))


async def test_lasting_errors_are_reported() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fail(FETCH, ErrorCode.topic_authorization_failed)
        consumer.assign({P0: FROM_0})
        with pytest.raises(BrokerError, match="topic_authorization_failed"):
            await consumer.poll(5000)


async def test_an_error_is_reported_while_its_cause_lasts_and_reading_continues_afterwards() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 10)
        cluster.fail(FETCH, *[ErrorCode.topic_authorization_failed] * 3)
        consumer.assign({P0: FROM_0})
        for _ in range(3):
            with pytest.raises(BrokerError, match="topic_authorization_failed"):
                await consumer.poll(5000)
        assert await read(consumer, 10) == list(range(10))


async def test_an_error_during_a_pause_is_reported_after_it() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fail(FETCH, *[ErrorCode.topic_authorization_failed] * 2)
        consumer.assign({P0: FROM_0})
        reading = consumer.reader.readings.get(P0)
        assert reading is not None
        await eventually(lambda: reading.phase is Phase.HALTED)
        consumer.pause([P0])
        assert await consumer.poll(0) == []
        consumer.resume([P0])
        with pytest.raises(BrokerError, match="topic_authorization_failed"):
            await consumer.poll(5000)


async def test_a_batch_that_does_not_open_is_not_passed_and_neither_is_what_lies_behind_it() -> None:
    """FT-15."""
    async with ScriptedCluster(partitions=2) as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 10)
        cluster.fill(1, 10, first=100)
        sound = cluster.logs[0].batches[4]
        broken = bytearray(sound)
        broken[-1] ^= 1
        cluster.logs[0].batches[4] = bytes(broken)
        consumer.assign({P0: FROM_0, P1: FROM_0})
        await eventually(lambda: consumer._prefetch.used_bytes > 0)
        found: list[int] = []

        async def read_records(count: int) -> None:
            while len(found) < count:  # on a busy machine no record may arrive for so long, and then the remaining ones
                async for _, record in consumer.records(timeout_ms=500):
                    found.append(int(record.value or b""))

        for _ in range(4):
            with pytest.raises(InvalidBatch):
                await read_records(20)
            assert consumer.positions()[P0].offset == 4
        cluster.logs[0].batches[4] = sound
        await read_records(20)
        assert sorted(found) == [*range(10), *range(100, 110)]


async def test_records_before_a_damaged_batch_come_first_and_then_the_error() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 40)
        broken = bytearray(cluster.logs[0].batches[30])
        broken[8:12] = b"\0\0\0\x01"
        cluster.logs[0].batches[30] = bytes(broken)
        cluster.logs[0].read = _reading_whole(cluster)  # type: ignore[method-assign]
        consumer.assign({P0: FROM_0})
        found: list[int] = []
        with pytest.raises(DamagedLog, match="t-0 at offset 30"):
            await read_on(consumer, found)
        assert found == list(range(30))


def _reading_whole(cluster: ScriptedCluster) -> Any:
    return lambda offset, max_bytes: b"".join(
        cluster.logs[0].batches[offset : offset + (1 if offset >= 30 else 30 - offset)]
    )


async def test_a_truncated_log_is_reported_without_a_policy() -> None:
    async with ScriptedCluster(nodes=2) as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 10)
        consumer.assign({P0: FROM_0})
        await read(consumer, 10)
        cluster.logs[0].truncate(6)
        cluster.move(0, 2)
        cluster.fill(0, 10, first=100)
        with pytest.raises(LogTruncated, match="offset 6 on"):
            await read_on(consumer, [])


async def test_a_log_that_was_cut_is_read_on_where_it_differs_with_a_policy() -> None:
    async with ScriptedCluster(nodes=2) as cluster, consuming(cluster, ResetPolicy.EARLIEST) as consumer:
        cluster.fill(0, 10)
        consumer.assign({P0: FROM_0})
        await read(consumer, 10)
        cluster.logs[0].truncate(6)
        cluster.move(0, 2)
        cluster.fill(0, 10, first=100)
        assert await read(consumer, 10) == list(range(100, 110))


async def test_a_dead_broker_does_not_stop_the_others() -> None:
    async with ScriptedCluster(nodes=2, partitions=2) as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 20)
        cluster.fill(1, 20, first=100)
        consumer.assign({P0: FROM_0, P1: FROM_0})
        await cluster.brokers[2].stop()
        assert await read(consumer, 20) == list(range(20))
        await cluster.brokers[2].start()
        assert await read(consumer, 20) == list(range(100, 120))


async def test_a_broker_that_comes_back_elsewhere_is_read_there() -> None:
    async with ScriptedCluster(nodes=2) as cluster, consuming(cluster) as consumer:
        cluster.move(0, 2)
        cluster.fill(0, 10)
        consumer.assign({P0: FROM_0})
        await read(consumer, 10)
        moved = cluster.brokers[2]
        await moved.stop()
        moved.address = moved.address._replace(port=0)
        await moved.start()
        cluster.fill(0, 10, first=10)
        assert await read(consumer, 10) == list(range(10, 20))


async def test_interceptors_see_every_poll_that_brings_something() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 5)
        seen: list[int] = []
        consumer.interceptors.append(lambda chunks: seen.extend(numbers(consumer, chunks)) or chunks)  # type: ignore[func-returns-value]
        consumer.assign({P0: FROM_0})
        assert await read(consumer, 5) == seen
        assert consumer.lag(P0) == 0


async def test_records_are_opened_at_the_edge_until_nothing_comes_any_more() -> None:
    async with ScriptedCluster() as cluster, consuming(cluster) as consumer:
        cluster.fill(0, 20, batch=5)
        consumer.assign({P0: Start(Position(3))})
        found: list[tuple[PartitionKey, int]] = []
        while len(found) < 17:  # on a busy machine nothing may come for so long, and then the rest
            found += [(place, record.offset) async for place, record in consumer.records(timeout_ms=500)]
        assert found == [(P0, offset) for offset in range(3, 20)]
