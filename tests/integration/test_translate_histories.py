"""A translate link whose logs have lost records: topics that are deleted or made again, logs that
start later or are compacted, batches that the target refuses.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from mirror.translate.notes.core.stored_map import partition_records
from mirror.translate.notes.offset_store import TOPIC_PREFIX, OffsetStore
from tests.support.clients.kafka_clients import delete_records
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.translate_links import (
    PartitionContent,
    create_topic,
    produce_batches,
    read_both,
    read_partition,
    start_translate_mirror,
    total_end,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.java]


async def test_a_mirror_goes_on_where_the_source_was_compacted_behind_it(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Killed before it noted its position; some of the records that it mirrored since then are gone
    when it starts again.
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
        # Put back the older notes, as if the mirror had been killed right after it stored them.
        await store.save([partition_records(key, noted, chunks=range(noted.map.last_chunk + 1))], now_ms=1)
        await produce_batches(source, topic, 0, 10, 40, size=10_000)

        async def is_compacted() -> bool:
            """True if compaction has left only those keys of the first batch without a note that no
            later batch has.
            """
            found = await read_partition(source, topic, 0)
            return [one.key for one in found.records[:15]] == [b"key-%d" % index for index in range(5, 20)]

        await eventually(is_compacted)
        mirror.start()

        async def is_mirrored() -> tuple[PartitionContent, PartitionContent]:
            theirs, ours = await read_both(source, topic, target, f"a.{topic}")
            assert ours.records[-1] == theirs.records[-1]
            return theirs, ours

        theirs, ours = await eventually(is_mirrored)
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
    """A broker accepts any sequence number from a producer that it does not know, so the first
    batch of the new log is one from the middle of the source's.
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

    await eventually(is_all_there)
    assert "lost records" in mirror.log_text()
    await produce_batches(source, "lost", 0, 23, 3)
    await eventually(is_all_there)


async def test_a_copy_that_was_deleted_and_created_again_gets_all_records(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Consumers create missing topics: the next records are written before the mirror has learned
    that this is another topic.
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

    await eventually(has_taken_some)
    await produce_batches(source, "replaced", 0, 60, 60, records=1)
    await eventually(lambda: "replaced by another one" in mirror.log_text())
    await produce_batches(source, "replaced", 0, 120, 20, records=1)

    async def is_all_there() -> bool:
        theirs, ours = await read_both(source, "replaced", target, "a.replaced")
        assert ours.records[-len(theirs.records) :] == theirs.records
        return True

    await eventually(is_all_there)


async def state_of(mirror: RunningProcess, topic: str, wanted: str) -> str:
    """Wait until the topic's first partition is in a state. Returns its reason."""

    async def is_so() -> str:
        reply = await describe_mirror(mirror)
        states = {one.topic: (one.state, one.reason) for one in reply.partitions if one.partition == 0}
        assert topic in states, states
        assert states[topic][0] == wanted, states[topic]
        return states[topic][1]

    return await eventually(is_so)


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

    await eventually(is_seen_gone)
    await create_topic(source, "anew", 1)
    await produce_batches(source, "anew", 0, 50, 20)

    async def is_seen_anew() -> bool:
        return "when topic a.anew is deleted at the target" in await state_of(mirror, "anew", "RESET")

    await eventually(is_seen_anew)
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
    """M9, and its remedy: continue and count them."""
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

    await eventually(has_the_rest)


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
