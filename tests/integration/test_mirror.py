"""A mirror between two real brokers: the target has the source's batches byte for byte, and every
refusal has a name.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.kafka_clients import delete_records
from tests.support.clients.transactional_clients import WITHIN_S, transactional_producer
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, mirror_ports, reset_topics, scrape, verify_mirror
from tests.support.pairs.mirror_sites import Pair, raw_log, start_pair
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.control.cluster_pb2 import LinkPhase

pytestmark = pytest.mark.integration

LARGEST_VALUE_BYTES = 1_048_000
"""As much as the default `max.message.bytes` lets through."""


RETENTION_MS = "4000000000000"
"""A lifetime: the batches are dated 1970."""

INTERNAL = {"__consumer_offsets", "__transaction_state"}


def commit_one(bootstrap: str) -> None:
    """One record and its marker to partition 0."""
    producer = transactional_producer(bootstrap, "one")
    producer.begin_transaction()
    producer.produce("orders", b"one", partition=0)
    producer.commit_transaction(WITHIN_S)


async def wait_for_state(mirror: RunningProcess, state: str, reason: str = "") -> str:
    """Wait until all partitions are in the state for such a reason; the reason of the first."""

    async def is_so() -> str:
        partitions = (await describe_mirror(mirror)).partitions
        assert partitions
        assert {partition.state for partition in partitions} == {state}, [(p.state, p.reason) for p in partitions]
        assert all(reason in partition.reason for partition in partitions), [p.reason for p in partitions]
        return str(partitions[0].reason)

    return await eventually(is_so)


async def test_the_target_becomes_a_byte_exact_copy(processes: Processes, tmp_path: Path) -> None:
    """M1, M8: codecs, empty partitions, transactions, null values, the largest record, no time; and
    the page of metrics.
    """
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 4)
    async with KafkaClient(pair.source.bootstrap) as client:
        for codec in range(5):
            for partition in range(3):
                values = [(b"key", None), (None, b"value" * 50), (b"", b"")]
                await client.produce("orders", partition, batch(values, codec=codec, timestamp_ms=1_700_000_000_000))
        await client.produce("orders", 2, batch([b"x" * LARGEST_VALUE_BYTES], timestamp_ms=-1))
    await asyncio.to_thread(commit_one, pair.source.bootstrap)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 4)
    await wait_for_state(mirror, "MIRRORING")
    place = 'partition="0",source="a",target="b",topic="orders"'
    (_, log_end_offset), *_ = await pair.ends(pair.source, "orders", 4)

    def is_on_the_page() -> bool:
        """The page counts the records that the target acknowledged, markers too."""
        page = scrape(mirror)
        for name in ("antipode_mirror_lag_records", "antipode_mirror_lag_seconds", "antipode_mirror_queue_bytes"):
            assert name in page
        counted = f"kafka_connect_mirror_mirrorsourceconnector_record_count{{{place}}} "
        assert [line.removeprefix(counted) for line in page.splitlines() if line.startswith(counted)] == [
            f"{log_end_offset}.0"
        ]
        assert f"kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms_avg{{{place}}}" in page
        return True

    await eventually(is_on_the_page)
    await pair.caught_up("orders", 4)


async def test_compressed_connections_carry_the_same_bytes(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    compressed = {
        "antipode.source.compression.type": "zstd",
        "antipode.target.compression.type": "zstd",
        "antipode.target.compression.level": "1",
    }
    mirror = pair.start_mirror(compressed)
    for partition in range(2):
        await pair.produce("orders", partition, 30, records=100, size=200)
    await pair.caught_up("orders", 2)
    page = scrape(mirror)
    for end in ("source", "target"):
        plain, wire = (_counted(page, f"antipode_mirror_compression_{name}_bytes", end) for name in ("plain", "wire"))
        assert plain > 1_000_000
        assert wire < plain / 5
        assert _counted(page, "antipode_mirror_compression_refusals", end) == 0


def _counted(page: str, name: str, end: str) -> float:
    start = f'{name}_total{{end="{end}",link="a-b"}} '
    return next(float(line.removeprefix(start)) for line in page.splitlines() if line.startswith(start))


async def test_the_first_record_is_there_soon_after_the_start(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 1)
    pair.start_mirror()
    await pair.caught_up("orders")


async def test_a_source_whose_log_starts_inside_a_batch_is_copied_with_that_start(
    processes: Processes, tmp_path: Path
) -> None:
    """M7: a request that deletes records may name any offset."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 4)
    await asyncio.to_thread(delete_records, pair.source.bootstrap, "orders", 15)
    pair.start_mirror()
    await pair.caught_up("orders")
    await pair.produce("orders", 0, 1)
    await pair.caught_up("orders")
    await eventually(lambda: starts_at(pair, 15))


async def starts_at(pair: Pair, offset: int) -> bool:
    """True if both logs start at the offset. Raises AssertionError until then."""
    ends = [await pair.ends(site, "orders", 1) for site in (pair.source, pair.target)]
    assert [start for ((start, _),) in ends] == [offset] * 2, ends
    return True


async def test_only_topics_of_the_link_are_mirrored(processes: Processes, tmp_path: Path) -> None:
    """MM-04, MM-11: the blacklist wins, unmatched is out."""
    pair = await start_pair(
        processes, tmp_path, whitelist=["orders.*", "control"], blacklist=["orders-secret", "control"]
    )
    for topic in ("orders", "orders-secret", "control", "other"):
        await pair.create(topic)
        await pair.produce(topic, 0, 2)
    pair.start_mirror()
    await pair.caught_up("orders")
    async with KafkaClient(pair.target.bootstrap, site_local=True) as client:
        assert set((await client.metadata()).topics) - INTERNAL == {"orders"}


async def test_filters_of_the_file_that_differ_from_the_links_are_an_error(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path, whitelist=["orders"])
    mirror = pair.start_mirror({"whitelist": "orders,flights"})
    assert mirror.wait_ended() == 1
    assert (
        "configuration whitelist='orders,flights' is not usable: the same as link a-b has: orders" in mirror.log_text()
    )


async def test_a_link_that_is_not_there_is_an_error_that_names_those_that_are(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path)
    mirror = pair.start_mirror({"link.name": "nowhere"})
    assert mirror.wait_ended() == 1
    assert "site b has no link 'nowhere'; its links: a-b" in mirror.log_text()


async def test_new_topics_partitions_and_configs_follow_while_it_runs(processes: Processes, tmp_path: Path) -> None:
    """M6: one refresh interval, ids included; a local change at the target is undone."""
    pair = await start_pair(processes, tmp_path)
    mirror = pair.start_mirror()
    await pair.create("late", 2, {"retention.ms": RETENTION_MS})
    await pair.produce("late", 1, 3)
    await pair.caught_up("late", 2)
    async with (
        KafkaClient(pair.source.bootstrap) as source,
        KafkaClient(pair.target.bootstrap, site_local=True) as target,
    ):
        ids = [(await client.metadata(["late"])).topics["late"].topic_id for client in (source, target)]
        assert ids[0] == ids[1]
        assert (await target.topic_configs(["late"]))["late"] == {"retention.ms": RETENTION_MS}
        await pair.grow("late", 3)
        await pair.produce("late", 2, 3)
        await pair.caught_up("late", 3)
        await pair.alter(pair.target, "late", {"retention.ms": "1", "segment.bytes": "1048576"})
        await pair.alter(pair.source, "late", {"cleanup.policy": "compact,delete"})

        async def configs_agree() -> bool:
            wanted = {"retention.ms": RETENTION_MS, "cleanup.policy": "compact,delete"}
            return (await target.topic_configs(["late"]))["late"] == wanted

        await eventually(configs_agree)
    await wait_for_state(mirror, "MIRRORING")


async def test_a_graceful_stop_drains_and_a_restart_copies_nothing_again(processes: Processes, tmp_path: Path) -> None:
    """MM-25, M10."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 30, records=50, size=1000)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 2)
    mirror.stop()
    assert mirror.exit_code == 0
    assert '{"drained": true}' in mirror.log_text()
    again = pair.start_mirror()
    await wait_for_state(again, "MIRRORING")
    await pair.produce("orders", 0, 1, records=10)
    await pair.caught_up("orders", 2)

    async def has_counted() -> bool:
        return sum(partition.mirrored_records for partition in (await describe_mirror(again)).partitions) == 10

    await eventually(has_counted)


async def test_a_fenced_source_is_drained_and_a_promoted_target_is_left_alone(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 3)
    mirror = pair.start_mirror()
    await pair.caught_up("orders")
    await pair.turn(epoch=1, active="a", phase=LinkPhase.FENCED)
    await wait_for_state(mirror, "PROMOTING")
    await pair.turn(epoch=2, active="b")
    await wait_for_state(mirror, "PROMOTED", "site b is active at link epoch 2")
    async with KafkaClient(pair.target.bootstrap) as client:
        await client.produce("orders", 0, batch([b"written at b"]))
    before = await raw_log(pair.target, "orders", 0, 0, 31)
    # The link turns back without b's extra record ever having been at a: named, never overwritten.
    await pair.turn(epoch=3, active="a")
    await wait_for_state(mirror, "FAULTED", "30")
    assert await raw_log(pair.target, "orders", 0, 0, 31) == before
    # F12: the copy is made anew when a person asks for it, under the id that it had.
    (reset,) = (await reset_topics(mirror, "orders")).topics
    (log,) = reset.partitions
    assert (reset.outcome, log.kept_from_offset, log.log_end_offset) == ("put away", 30, 31)
    await pair.produce("orders", 0, 1)
    await pair.caught_up("orders")
    await wait_for_state(mirror, "MIRRORING")
    await asyncio.to_thread(find_in_quarantine, pair.target.bootstrap, tmp_path / "exported.log", before)


def quarantine(bootstrap: str, command: str, *arguments: str, code: int = 0) -> str:
    """The output of `antipode quarantine COMMAND`."""
    done = run_antipode("quarantine", command, *arguments, "--bootstrap-server", bootstrap)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def find_in_quarantine(bootstrap: str, file: Path, log: bytes) -> None:
    """The records that only b had in orders-0 are listed, shown and exported unchanged, and are
    deleted on request.
    """
    (entry,) = json.loads(quarantine(bootstrap, "list", "--topic", "orders", "--output", "json"))
    assert (entry["kind"], entry["topic"], entry["partition"]) == ("reset", "orders", 0)
    assert (entry["first_offset"], entry["end_offset"], entry["link"], entry["origin_site"]) == (30, 31, "a-b", "b")
    assert "30" in entry["reason"]
    name = entry["name"]
    assert name in quarantine(bootstrap, "list")
    assert quarantine(bootstrap, "show", name) == "written at b\n"
    quarantine(bootstrap, "export", name, "--to", str(file))
    exported = file.read_bytes()
    assert len(exported) == entry["size_bytes"]
    assert log.endswith(exported), "the batches are as they were in the log"
    assert "File exists" in quarantine(bootstrap, "export", name, "--to", str(file), code=1)
    assert "would be deleted" in quarantine(bootstrap, "delete", name, "--dry-run")
    quarantine(bootstrap, "delete", name, "--yes")
    assert json.loads(quarantine(bootstrap, "list", "--output", "json")) == []
    assert "nothing is kept under the name" in quarantine(bootstrap, "show", name, code=1)


async def test_a_recreated_topic_is_a_reset_naming_both_ids(processes: Processes, tmp_path: Path) -> None:
    """M9."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 3)
    mirror = pair.start_mirror()
    await pair.caught_up("orders")
    before = await raw_log(pair.target, "orders", 0, 0, 30)
    async with KafkaClient(pair.source.bootstrap) as client:
        await client.delete_topics(["orders"])
        await pair.create("orders")
        await pair.produce("orders", 0, 5)
        new_id = (await client.metadata(["orders"])).topics["orders"].topic_id
    reason = await wait_for_state(mirror, "RESET", str(new_id))
    assert "antipode links reset" in reason
    assert await raw_log(pair.target, "orders", 0, 0, 30) == before


async def test_group_offsets_come_along_clamped_and_go_back_only_after_a_reset(
    processes: Processes, tmp_path: Path
) -> None:
    """M3, M4: also a group at offset 0, and one that is ahead of the log."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 3)
    pair.start_mirror()
    await pair.caught_up("orders", 2)
    keys = [("orders", 0), ("orders", 1)]
    async with KafkaClient(pair.source.bootstrap) as source, KafkaClient(pair.target.bootstrap) as target:

        async def carried(first: int, second: int) -> None:
            async def is_there() -> bool:
                found = await target.committed("billing", keys)
                assert [found[key].offset for key in keys] == [first, second], found
                return True

            await eventually(is_there)

        await source.commit("billing", {keys[0]: CommittedOffset(0), keys[1]: CommittedOffset(20, 0, "mine")})
        await carried(0, 20)
        assert (await target.committed("billing", keys))[keys[1]].metadata == "mine"
        await source.commit("billing", {keys[0]: CommittedOffset(1000), keys[1]: CommittedOffset(5)})
        await carried(30, 5)
        await pair.produce("orders", 0, 1)
        await carried(40, 5)


@pytest.mark.long
async def test_offsets_outlive_the_standbys_retention_as_long_as_they_live_at_the_source(
    processes: Processes, tmp_path: Path
) -> None:
    """M3: a member keeps the group alive at the source; the group's partition is quiet, and at the
    standby it has no members.
    """
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
    }
    pair = await start_pair(processes, tmp_path, settings=settings)
    await pair.create("orders")
    await pair.produce("orders", 0, 3)
    pair.start_mirror()
    await pair.caught_up("orders")
    key, began_s = ("orders", 0), time.monotonic()
    options = {"bootstrap.servers": pair.source.bootstrap, "group.id": "billing", "enable.auto.commit": False}
    consumer = Consumer(options)
    async with KafkaClient(pair.source.bootstrap) as source, KafkaClient(pair.target.bootstrap) as target:
        try:
            consumer.subscribe(["orders"])

            def has_joined() -> bool:
                consumer.poll(0.2)
                return bool(consumer.assignment())

            await eventually(has_joined)
            consumer.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
            await source.commit("simple", {key: CommittedOffset(10)})

            async def is_so(client: KafkaClient, group: str, offset: int) -> bool:
                found = (await client.committed(group, [key])).get(key)
                assert found is not None
                assert found.offset == offset, found
                return True

            await eventually(lambda: is_so(target, "billing", 20))
            await eventually(lambda: is_so(target, "simple", 10))
            # The source forgets the simple group's, and a minute later the standby does; the other
            # one stays at both.
            await eventually(lambda: is_so(source, "simple", -1))
            await eventually(lambda: is_so(target, "simple", -1))
            assert time.monotonic() - began_s > 60
            await is_so(source, "billing", 20)
            await is_so(target, "billing", 20)
        finally:
            consumer.close()


async def test_two_mirrors_of_one_link_write_everything_once(processes: Processes, tmp_path: Path) -> None:
    """M11."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    pair.start_mirror()
    pair.start_mirror()
    for partition in range(2):
        await pair.produce("orders", partition, 40)
    await pair.caught_up("orders", 2)
    for mirror in pair.mirrors:
        await wait_for_state(mirror, "MIRRORING")


async def test_a_small_queue_that_never_waits_loses_nothing(processes: Processes, tmp_path: Path) -> None:
    """MM-06 with queue.enqueueTimeout.ms=0, spelled as long ago."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    for partition in range(2):
        await pair.produce("orders", partition, 60, records=50, size=1000)
    mirror = pair.start_mirror({"queue.byte.size": "1048576", "queue.enqueueTimeout.ms": "0"})
    await pair.caught_up("orders", 2)
    assert "queue.enqueue.timeout.ms is not -1" in mirror.log_text()


async def test_a_taken_port_is_one_clear_message(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    first = pair.start_mirror()
    await first.wait_ready_async(lambda: '"ready"' in first.log_text())
    second = pair.start_mirror({"antipode.metrics.listener": f"127.0.0.1:{mirror_ports(first)['ready']}"})
    assert second.wait_ended() == 1
    assert "antipode.metrics.listener" in second.log_text()
    assert "Traceback" not in second.log_text()


async def test_idle_partitions_tell_the_target_how_the_source_is(processes: Processes, tmp_path: Path) -> None:
    """The target knows the source's high watermark and its time without traffic. A failover counts
    the lost records from it.
    """
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 2)
    pair.start_mirror()
    await pair.caught_up("orders")
    began_ms = time.time() * 1000

    async def is_told() -> bool:
        (partition,) = await pair.describe_partitions(pair.target)
        return partition.source_high_watermark == 20 and partition.source_seen_at_ms > began_ms

    await eventually(is_told)


@pytest.mark.long
@pytest.mark.parametrize("through", ["a group", "zookeeper"])
async def test_daemons_that_share_an_exact_link_take_over_from_one_that_dies(
    through: str, processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 4)
    settings = {"antipode.sharing.enabled": "true"}
    if through == "zookeeper":
        settings["antipode.sharing.zookeeper.connect"] = zookeeper_connect
    mirrors = [pair.start_mirror(settings) for _ in range(2)]

    async def is_split() -> bool:
        replies = [await describe_mirror(mirror) for mirror in mirrors]
        assert sorted(len(reply.partitions) for reply in replies) == [2, 2], replies
        return True

    await eventually(is_split)
    for partition in range(4):
        await pair.produce("orders", partition, 10)
    await pair.caught_up("orders", 4)
    mirrors[0].kill()
    for partition in range(4):
        await pair.produce("orders", partition, 10)
    await pair.caught_up("orders", 4)


async def test_an_exact_link_is_verified_while_it_mirrors(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 2)
    await pair.produce("orders", 1, 30)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 2)
    await wait_for_state(mirror, "MIRRORING")
    found = await verify_mirror(mirror)
    assert [(one.partition, one.verdict, one.records) for one in found] == [(0, "equal", 0), (1, "equal", 300)]
