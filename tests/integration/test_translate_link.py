"""Translate links with Apache Kafka at the source, at the target and at both ends."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.translate.notes.core.stored_map import partition_records
from mirror.translate.notes.offset_store import TOPIC_PREFIX, OffsetStore
from mirror.translate.offset_translator import OffsetTranslator
from tests.support.clients.kafka_clients import delete_records
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.examples import examples
from tests.support.pairs.mirror_sites import describe_mirror, start_lone_site
from tests.support.pairs.translate_links import (
    PartitionContent,
    create_topic,
    mirrored_beyond,
    mirrored_something,
    produce_batches,
    read_both,
    read_partition,
    run_transactions,
    start_translate_mirror,
    total_end,
    until_a_random_moment,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes.processes import Processes, RunningProcess
from wire.batches.record_batch import Compression
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset
from wire.protocol.ids import TopicPartition

KILLS = examples(6)

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.timeout(300)]


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
    await wait_equal(source, target, topic, 3, within_ms=60_000)


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

    await eventually(is_synced, 60_000)


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

    await eventually(follows, 60_000)
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

    await eventually(has_all, 60_000)
    await produce_batches(a, "both", 0, 40, 1)
    await produce_batches(b, "both", 0, 41, 1)

    async def has_exactly_all() -> bool:
        counts = [len((await read_partition(site, "both", 0)).records) for site in (a, b)]
        assert min(counts) >= 210, counts
        assert counts == [210, 210], f"records came back: {counts}"
        return True

    await eventually(has_exactly_all, 60_000)
    await eventually(lambda: is_told_both_ways(a, b), 60_000)


async def is_told_both_ways(a: str, b: str) -> bool:
    """Each offset of topic `both` at one site is, at the other, where its first record lies that
    was not read; also by the command.
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

    await eventually(lambda: has_all(180), 60_000)
    await produce_batches(sites["b"], "ring", 0, 100, 1)
    await eventually(lambda: has_all(185), 60_000)
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

    await eventually(is_compacted, 90_000)
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

    await eventually(has_the_last_of_each_key, 60_000)


async def test_a_mirror_goes_on_where_the_source_was_compacted_behind_it(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Killed before it noted how far it was; what it mirrored since is no longer all there when it
    starts again.
    """
    source, target, topic = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers, "thinned"
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.bytes": "1048576"}
    await create_topic(source, topic, 1, configs)
    settings = {"whitelist": topic, "link.name": topic, "sync.topic.configs.enabled": "false"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await produce_batches(source, topic, 0, 0, 3)
    await wait_equal(source, target, topic)
    mirror.stop()
    key = TopicPartition(topic, 0)
    async with KafkaClient(target) as client:
        store = OffsetStore(client, topic, replication_factor=1)
        noted = (await store.load()).translation(key)
        mirror.start()
        await produce_batches(source, topic, 0, 3, 1, records=20, size=10_000)
        await produce_batches(source, topic, 0, 4, 6, size=10_000)
        await wait_equal(source, target, topic)
        mirror.kill()
        # What it had noted when it was killed.
        await store.save([partition_records(key, noted, chunks=range(noted.map.last_chunk + 1))], now_ms=1)
        await produce_batches(source, topic, 0, 10, 40, size=10_000)

        async def is_compacted() -> bool:
            """Of the first batch that was not noted the keys are left that no later one has."""
            found = await read_partition(source, topic, 0)
            return [one.key for one in found.records[:15]] == [b"key-%d" % index for index in range(5, 20)]

        await eventually(is_compacted, 90_000)
        mirror.start()

        async def is_mirrored() -> tuple[PartitionContent, PartitionContent]:
            theirs, ours = await read_both(source, topic, target, f"a.{topic}")
            assert ours.records[-1] == theirs.records[-1]
            return theirs, ours

        theirs, ours = await eventually(is_mirrored, 60_000)
        mirror.stop()
        found = (await store.load()).translation(key)
    assert len(set(ours.records)) == len(ours.records), "something was mirrored twice"
    places = dict(zip(ours.records, ours.offsets, strict=True))
    for record, offset in zip(theirs.records, theirs.offsets, strict=True):
        assert found.downstream(offset) == places[record]


async def test_a_target_topic_that_was_deleted_is_mirrored_again_from_the_start(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "wiped", 1)
    await produce_batches(source, "wiped", 0, 0, 10)
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "wiped"})
    await wait_equal(source, target, "wiped")
    mirror.stop()
    async with KafkaClient(target) as client:
        await client.delete_topics(["a.wiped"])
    await produce_batches(source, "wiped", 0, 10, 10)
    mirror.start()
    await wait_equal(source, target, "wiped")
    async with KafkaClient(target) as client:
        await client.delete_topics(["a.wiped"])
    await produce_batches(source, "wiped", 0, 20, 10)
    await wait_equal(source, target, "wiped")


def log_of(directory: Path, partition: str) -> Path:
    (log,) = directory.glob(f"**/{partition}")
    return log


@pytest.mark.long
async def test_a_target_that_lost_a_log_and_took_what_came_next_gets_everything_again(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """A broker takes any sequence from a producer that it does not know: of a log that begins anew
    the first batch is one of the middle.
    """
    source, kafka = apache_kafka.bootstrap_servers, start_apache_kafka(processes, tmp_path / "kafka")
    target = kafka.bootstrap_servers
    await create_topic(source, "lost", 1)
    await produce_batches(source, "lost", 0, 0, 20)
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "lost"})
    await wait_equal(source, target, "lost")
    kafka.process.kill()
    await produce_batches(source, "lost", 0, 20, 3)
    shutil.rmtree(log_of(tmp_path / "kafka", "a.lost-0"))
    kafka.process.start()

    async def is_all_there() -> bool:
        theirs, ours = await read_both(source, "lost", target, "a.lost")
        assert ours.records[-len(theirs.records) :] == theirs.records
        return True

    await eventually(is_all_there, 120_000)
    assert "lost records" in mirror.log_text()
    await produce_batches(source, "lost", 0, 23, 3)
    await eventually(is_all_there, 60_000)


async def test_a_copy_that_somebody_deleted_and_made_again_gets_everything_whatever_came_to_it_first(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Consumers make topics that are not there: what comes next is written before the mirror has
    heard that this is another topic.
    """
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "replaced", 1)
    await produce_batches(source, "replaced", 0, 0, 40, records=1)
    settings = {"whitelist": "replaced", "topics.refresh.interval.ms": "4000"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "replaced")
    mirror.pause()  # lest it makes the copy itself where it finds none
    async with KafkaClient(target) as client:
        await client.delete_topics(["a.replaced"])
        await eventually(lambda: is_gone(client, "a.replaced"))
    await create_topic(target, "a.replaced", 1)
    mirror.resume()
    await produce_batches(source, "replaced", 0, 40, 20, records=1)

    async def has_taken_some() -> bool:
        return await total_end(target, "a.replaced", 1) > 0

    await eventually(has_taken_some, 60_000)
    await produce_batches(source, "replaced", 0, 60, 60, records=1)
    await eventually(lambda: "replaced by another one" in mirror.log_text(), 60_000)
    await produce_batches(source, "replaced", 0, 120, 20, records=1)

    async def is_all_there() -> bool:
        theirs, ours = await read_both(source, "replaced", target, "a.replaced")
        assert ours.records[-len(theirs.records) :] == theirs.records
        return True

    await eventually(is_all_there, 60_000)


async def state_of(mirror: RunningProcess, topic: str, wanted: str) -> str:
    """Wait until the topic's first partition is in a state; its reason."""

    async def is_so() -> str:
        reply = await describe_mirror(mirror)
        states = {one.topic: (one.state, one.reason) for one in reply.partitions if one.partition == 0}
        assert topic in states, states
        assert states[topic][0] == wanted, states[topic]
        return states[topic][1]

    return await eventually(is_so, 60_000)


async def test_a_source_topic_that_was_made_anew_is_a_reset_until_its_copy_is_deleted(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """M9."""
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "anew", 1)
    await produce_batches(source, "anew", 0, 0, 10)
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "anew"})
    await wait_equal(source, target, "anew")
    before = await read_partition(target, "a.anew", 0)
    async with KafkaClient(source) as client:
        await client.delete_topics(["anew"])
        await eventually(lambda: is_gone(client, "anew"))

    async def is_seen_gone() -> bool:
        return "until topic a.anew is deleted there" in await state_of(mirror, "anew", "RESET")

    await eventually(is_seen_gone, 60_000)
    await create_topic(source, "anew", 1)
    await produce_batches(source, "anew", 0, 50, 20)

    async def is_seen_anew() -> bool:
        return "when topic a.anew is deleted at the target" in await state_of(mirror, "anew", "RESET")

    await eventually(is_seen_anew, 60_000)
    assert (await read_partition(target, "a.anew", 0)).records == before.records
    async with KafkaClient(target) as client:
        await client.delete_topics(["a.anew"])
    await wait_equal(source, target, "anew")


async def is_gone(client: KafkaClient, topic: str) -> bool:
    return topic not in (await client.metadata()).topics


@pytest.mark.parametrize("before", [20, 23], ids=["at a batch", "inside a batch"])
async def test_a_source_whose_log_starts_later_is_mirrored_from_there(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path, before: int
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    topic = f"begun-{before}"
    await create_topic(source, topic, 1)
    await produce_batches(source, topic, 0, 0, 10)
    await asyncio.to_thread(delete_records, source, topic, before)
    settings = {"whitelist": topic, "link.name": topic}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, topic)
    mirror.kill()
    await produce_batches(source, topic, 0, 10, 10)
    mirror.start()
    await wait_equal(source, target, topic)


async def test_records_that_expired_before_they_were_mirrored_are_a_gap(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """M9, and its way out: to go on and count them."""
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "gap", 1)
    await produce_batches(source, "gap", 0, 0, 10)
    settings = {"whitelist": "gap", "link.name": "gap"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "gap")
    mirror.stop()
    await produce_batches(source, "gap", 0, 10, 10)
    await asyncio.to_thread(delete_records, source, "gap", 70)
    mirror.start()
    assert "20 offsets expired" in await state_of(mirror, "gap", "GAP")
    mirror.stop()
    skipping = {**settings, "antipode.gap.policy": "skip-and-record"}
    start_translate_mirror(processes, tmp_path, "skipping", source, target, skipping)

    async def has_the_rest() -> bool:
        theirs, ours = await read_both(source, "gap", target, "a.gap")
        assert len(ours.records) == 80, len(ours.records)
        assert ours.records[50:] == theirs.records
        return True

    await eventually(has_the_rest, 60_000)


async def test_a_batch_that_the_target_does_not_take_is_a_fault_until_it_does(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "large", 1)
    await create_topic(target, "a.large", 1, {"max.message.bytes": "2000"})
    await produce_batches(source, "large", 0, 0, 3)
    await produce_batches(source, "large", 0, 3, 1, size=2000)
    settings = {"whitelist": "large", "sync.topic.configs.enabled": "false"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    assert "message_too_large" in await state_of(mirror, "large", "FAULTED")
    async with KafkaClient(target) as client:
        await client.alter_topic_configs("a.large", to_set={"max.message.bytes": "100000"})
    await wait_equal(source, target, "large")


async def test_a_link_whose_notes_were_wiped_goes_on_where_the_copy_ends(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "noteless", 1)
    await produce_batches(source, "noteless", 0, 0, 10)
    settings = {"whitelist": "noteless", "link.name": "noteless"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "noteless")
    mirror.stop()
    async with KafkaClient(target) as client:
        await client.delete_topics([TOPIC_PREFIX + "noteless"])
    await produce_batches(source, "noteless", 0, 10, 10)
    mirror.start()
    await wait_equal(source, target, "noteless")
