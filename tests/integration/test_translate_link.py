"""Translate links with Apache Kafka at the source, at the target and at both ends."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.translate.offset_translator import OffsetTranslator
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.examples import examples
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    create_topic,
    mirrored_beyond,
    mirrored_something,
    produce_batches,
    read_both,
    read_partition,
    run_transactions,
    start_translate_mirror,
    until_a_random_moment,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.processes import Processes
from wire.batches.record_batch import Compression
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

KILLS = examples(6)


pytestmark = [pytest.mark.integration, pytest.mark.java]


async def test_records_arrive_as_they_are_under_every_codec(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "codecs", 5)
    for codec in Compression:
        await produce_batches(source, "codecs", int(codec), 0, 20, compression=codec)
    settings = {"whitelist": "codecs"}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "codecs", 5)
    for codec in Compression:
        await produce_batches(source, "codecs", int(codec), 20, 20, compression=codec)
    await wait_equal(source, target, "codecs", 5)


@pytest.mark.parametrize("is_antipode_the_target", [False, True], ids=["apache kafka", "antipode"])
async def test_small_batches_that_wait_arrive_together(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    """Where a topic's limit refuses a merged batch, its batches arrive one by one."""
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    if is_antipode_the_target:
        target = (await start_lone_site(processes, tmp_path, "site")).bootstrap
    kind = "antipode" if is_antipode_the_target else "kafka"
    waiting, narrow = f"waiting-{kind}", f"narrow-{kind}"
    await create_topic(source, waiting)
    await create_topic(source, narrow, 1, {"max.message.bytes": "1000"})
    for topic in (waiting, narrow):
        await produce_batches(source, topic, 0, 0, 60)
    settings = {"whitelist": f"{waiting},{narrow}", "link.name": kind}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    for topic in (waiting, narrow):
        await wait_equal(source, target, topic)
    theirs, ours = await read_both(source, waiting, target, f"a.{waiting}")
    assert len(ours.batches) < len(theirs.batches)
    theirs, ours = await read_both(source, narrow, target, f"a.{narrow}")
    assert ours.batches == theirs.batches


@pytest.mark.parametrize(
    "is_antipode_the_target",
    [pytest.param(False, id="apache kafka"), pytest.param(True, id="antipode", marks=pytest.mark.long)],
)
async def test_a_mirror_killed_at_random_moments_loses_and_repeats_nothing(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    if is_antipode_the_target:
        target = (await start_lone_site(processes, tmp_path, "site")).bootstrap
    topic = f"killed-{is_antipode_the_target}"
    await create_topic(source, topic, 3)
    settings = {"whitelist": topic, "max.partition.fetch.bytes": "20000", "num.producers": "2"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    chance = random.Random(8)
    stop = asyncio.Event()

    async def load() -> int:
        rounds = 0
        while not stop.is_set():
            for partition in range(3):
                await produce_batches(source, topic, partition, rounds * 40, 40, size=400)
            rounds += 1
        return rounds

    loading = asyncio.create_task(load())
    for _ in range(KILLS):
        await mirrored_something(target, f"a.{topic}", 3)
        await until_a_random_moment(chance)
        mirror.kill()
        mirror.start()
    stop.set()
    assert await loading > 0
    await wait_equal(source, target, topic, 3)


async def test_aborted_transactions_are_left_out_and_committed_ones_arrive_whole(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "transactions", 1)
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "transactions"})
    for attempt in range(3):
        await asyncio.to_thread(run_transactions, source, "transactions", attempt)
        mirror.kill()
        mirror.start()
    await wait_equal(source, target, "transactions")
    copy = await read_partition(target, "a.transactions", 0)
    assert copy.records
    assert all(record.value is not None and b"abort" not in record.value for record in copy.records)
    assert copy.offsets == list(range(len(copy.offsets))), "neither markers nor aborted records take offsets"


@pytest.mark.parametrize("is_antipode_the_source", [True, False], ids=["from antipode", "to antipode"])
async def test_an_antipode_site_is_an_end_like_any_other(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, is_antipode_the_source: bool
) -> None:
    site = await start_lone_site(processes, tmp_path, "site")
    ends = [site.bootstrap, apache_kafka.bootstrap_servers]
    source, target = ends if is_antipode_the_source else reversed(ends)
    topic = f"moved-{is_antipode_the_source}"
    await create_topic(source, topic, 2)
    await produce_batches(source, topic, 0, 0, 20, compression=Compression.ZSTD)
    settings = {"whitelist": topic, "topic.naming.policy": "identity", "link.name": topic}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, topic, 2, target_topic=topic)
    mirror.kill()
    await produce_batches(source, topic, 1, 0, 20, compression=Compression.LZ4)
    async with KafkaClient(source) as client:
        await client.commit(f"{topic} readers", {(topic, 0): CommittedOffset(50)})
    mirror.start()
    await wait_equal(source, target, topic, 2, target_topic=topic)

    async def is_synced() -> bool:
        async with KafkaClient(target) as client:
            committed = await client.committed(f"{topic} readers")
            assert (topic, 0) in committed, committed
            assert committed[topic, 0].offset == 50
            return True

    await eventually(is_synced)


async def test_partitions_that_are_added_and_configs_that_change_follow(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "growing", 1, {"cleanup.policy": "compact"})
    start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "growing"})
    await produce_batches(source, "growing", 0, 0, 3)
    await wait_equal(source, target, "growing")
    async with KafkaClient(source) as client:
        assert not (await client.grow_topic("growing", 3)).error_code
        assert not (await client.alter_topic_configs("growing", to_set={"segment.bytes": "2000000"})).error_code
    await produce_batches(source, "growing", 2, 0, 3)

    async def follows() -> bool:
        async with KafkaClient(target) as client:
            configs = (await client.topic_configs(["a.growing"]))["a.growing"]
            assert configs == {"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": "2000000"}, configs
            assert len((await client.metadata(["a.growing"])).topics["a.growing"].partitions) == 3
            return True

    await eventually(follows)
    await wait_equal(source, target, "growing", 3)


async def test_two_links_between_topics_of_one_name_do_not_make_a_loop(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    a, b = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    both = {"whitelist": "both", "topic.naming.policy": "identity", "antipode.target.existing": "append"}
    for site in (a, b):
        await create_topic(site, "both", 1)
    await produce_batches(a, "both", 0, 0, 10)
    await produce_batches(b, "both", 0, 10, 10)
    start_translate_mirror(processes, tmp_path, "there", a, b, both)
    back = {"link.name": "b-a", "source.alias": "b", "target.alias": "a", **both}
    start_translate_mirror(processes, tmp_path, "back", b, a, back)
    await produce_batches(a, "both", 0, 20, 10)
    await produce_batches(b, "both", 0, 30, 10)

    async def has_all() -> bool:
        ours, theirs = await read_both(a, "both", b, "both")
        assert len(ours.records) >= 200, len(ours.records)
        assert len(theirs.records) >= 200, len(theirs.records)
        assert sorted(ours.records, key=str) == sorted(theirs.records, key=str)
        return True

    await eventually(has_all)
    await produce_batches(a, "both", 0, 40, 1)
    await produce_batches(b, "both", 0, 41, 1)

    async def has_exactly_all() -> bool:
        counts = [len((await read_partition(site, "both", 0)).records) for site in (a, b)]
        assert min(counts) >= 210, counts
        assert counts == [210, 210], f"records came back: {counts}"
        return True

    await eventually(has_exactly_all)
    await eventually(lambda: is_told_both_ways(a, b))


async def is_told_both_ways(a: str, b: str) -> bool:
    """Each offset of topic `both` at one site is translated to the position of its first unread
    record at the other; also by the command.
    """
    ours, theirs = await read_partition(a, "both", 0), await read_partition(b, "both", 0)
    async with KafkaClient(a) as source, KafkaClient(b) as target:
        translator = await OffsetTranslator.read(target, "a-b", source=source)
    for here, there, translate in (
        (ours, theirs, translator.downstream),
        (theirs, ours, translator.upstream),
    ):
        for offset in here.offsets:
            unread = set(here.records[offset:])
            found = translate("both", 0, offset)
            assert found.offset == next(at for at, one in enumerate(there.records) if one in unread), found
            assert (found.is_known, found.opposite) == (True, "counted")
    command = ["links", "translate-offset", "a-b", "--topic", "both", "--offset", "100", "-b", b]
    reported = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--source-bootstrap-server", a])
    assert reported.stdout == f"both-0 offset {translator.downstream('both', 0, 100).offset}\n"
    reported = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert "(by this link alone; see --source-bootstrap-server)" in reported.stdout
    return True


async def test_a_ring_of_three_sites_brings_every_record_everywhere_once(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """M5: each site is mirrored to the next one only, under the same names."""
    third = await start_lone_site(processes, tmp_path, "c")
    sites = {"a": apache_kafka.bootstrap_servers, "b": kafka_b.bootstrap_servers, "c": third.bootstrap}
    for bootstrap in sites.values():
        await create_topic(bootstrap, "ring", 1)
    for source, target in (("a", "b"), ("b", "c"), ("c", "a")):
        settings = {
            "link.name": f"ring-{source}-{target}",
            "source.alias": source,
            "target.alias": target,
            "whitelist": "ring",
            "topic.naming.policy": "identity",
            "antipode.target.existing": "append",
        }
        start_translate_mirror(processes, tmp_path, f"{source}-{target}", sites[source], sites[target], settings)
    for number in range(4):
        for position, bootstrap in enumerate(sites.values()):
            await produce_batches(bootstrap, "ring", 0, 10 * number + 3 * position, 3)

    async def has_all(expected: int) -> bool:
        counts = [len((await read_partition(bootstrap, "ring", 0)).records) for bootstrap in sites.values()]
        assert min(counts) >= expected, counts
        return True

    await eventually(lambda: has_all(180))
    await produce_batches(sites["b"], "ring", 0, 100, 1)
    await eventually(lambda: has_all(185))
    contents = [sorted((await read_partition(bootstrap, "ring", 0)).records, key=str) for bootstrap in sites.values()]
    assert len(contents[0]) == 185
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize("is_antipode_the_target", [True, False], ids=["antipode", "apache kafka"])
async def test_batches_with_holes_and_brokers_times_arrive_whole(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    is_antipode_the_target: bool,
) -> None:
    """Compaction's holes and LogAppendTime: the two kinds of batches that are written anew, killed
    in between.
    """
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    if is_antipode_the_target:
        target = (await start_lone_site(processes, tmp_path, "site")).bootstrap
    compacted, stamped = f"compacted-{is_antipode_the_target}", f"stamped-{is_antipode_the_target}"
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.bytes": "1048576",
        "min.compaction.lag.ms": "0",
    }
    await create_topic(source, compacted, 1, configs)
    await create_topic(source, stamped, 1, {"message.timestamp.type": "LogAppendTime"})
    for number in range(3):
        await produce_batches(source, compacted, 0, 20 * number, 20, size=10_000)
        await produce_batches(source, stamped, 0, 20 * number, 20)

    async def is_compacted() -> bool:
        return len((await read_partition(source, compacted, 0)).records) < 3 * 20 * 5

    await eventually(is_compacted)
    settings = {"whitelist": f"{compacted},{stamped}", "link.name": compacted, "sync.topic.configs.enabled": "false"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await mirrored_beyond(0, target, f"a.{stamped}", 1)
    mirror.kill()
    mirror.start()
    await wait_equal(source, target, stamped, are_batches_equal=False)
    theirs = await read_partition(source, compacted, 0)

    async def has_the_last_of_each_key() -> bool:
        ours = await read_partition(target, f"a.{compacted}", 0)
        last = {record.key: record for record in ours.records}
        assert last == {record.key: record for record in theirs.records}
        return True

    await eventually(has_the_last_of_each_key)
