"""The guide "Moving a live cluster to Antipode, and back" of docs/translate-links.md, step by step
with clients that read and write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from mirror.mirrormaker.core.mirror_maker_records import Heartbeat
from runtime.clock import SystemClock
from tests.integration.test_translate_operation import antipode
from tests.support.clients.kafka_clients import Received, Record, librdkafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror, mirror_ports
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import create_topic, read_partition, start_translate_mirror, total_end
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes, RunningProcess
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = [pytest.mark.integration, pytest.mark.java]

TOPIC = "moving"
PARTITIONS = 2


@pytest.mark.long
async def test_groups_and_producers_move_to_antipode_and_back_and_read_each_record_once(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    old = apache_kafka.bootstrap_servers
    new = (await start_lone_site(processes, tmp_path, "b")).bootstrap
    await create_topic(old, TOPIC, PARTITIONS)
    sent = await produce(old, "before", 200)
    read = await consume(old, "shipping", 60)

    # 1 and 2
    settings = {"topic.naming.policy": "identity", "whitelist": TOPIC, "groups": "shipping,billing"}
    there = start_translate_mirror(processes, tmp_path, "there", old, new, settings)
    await is_copied(there, "a-b")
    # 3
    back = {**settings, "link.name": "b-a", "source.alias": "b", "target.alias": "a"}
    back_again = start_translate_mirror(processes, tmp_path, "back", new, old, back)
    await is_copied(back_again, "b-a")
    assert await total_end(old, TOPIC, PARTITIONS) == 200, "records came back"

    both_since_ms = SystemClock().now_ms()

    # 4: one group moves, the other one stays
    await stands_alike(old, new, "shipping", read)
    read += await consume(new, "shipping", 80)
    stayed = await consume(old, "billing", 150)

    # 5
    sent += await produce(new, "after", 100)
    stayed += await consume(old, "billing", 150)
    assert texts(stayed) == sorted(sent), "who has not moved misses nothing"
    read += await consume(new, "shipping", 30)

    # 6: and back
    await stands_alike(new, old, "shipping", read)
    sent += await produce(old, "again", 50)
    read += await consume(old, "shipping", 350 - len(read))
    assert texts(read) == sorted(sent), "each record once, across both moves"
    await is_copied(there, "a-b")
    assert await total_end(new, TOPIC, PARTITIONS) == await total_end(old, TOPIC, PARTITIONS) == 350

    await is_each_heartbeat_there_once(old, Heartbeat(source_alias="b", target_alias="a", timestamp_ms=both_since_ms))
    await is_each_heartbeat_there_once(new, Heartbeat(source_alias="a", target_alias="b", timestamp_ms=both_since_ms))

    # A reset while neither mirror runs: neither brings back the records that the other one copied.
    await stands_alike(old, new, "billing", stayed)
    for mirror in (there, back_again):
        mirror.stop()
    await reset(old, "billing")
    for mirror in (there, back_again):
        mirror.start()
    await stands_alike(old, new, "billing", [])
    await stands_alike(new, old, "billing", [])


async def produce(bootstrap: str, name: str, count: int) -> list[str]:
    """Records with names of their own, in turns over the partitions."""
    names = [f"{name}-{number}" for number in range(count)]
    records = [Record(value=text.encode(), partition=number % PARTITIONS) for number, text in enumerate(names)]
    await asyncio.to_thread(librdkafka_produce, bootstrap, TOPIC, records)
    return names


async def consume(bootstrap: str, group: str, count: int) -> list[Received]:
    """Read the next records of the group, and commit them."""
    return await asyncio.to_thread(librdkafka_consume, bootstrap, TOPIC, count, group=group)


async def is_each_heartbeat_there_once(bootstrap: str, like: Heartbeat) -> None:
    """As in MirrorMaker 2: heartbeats of the direction that ends there, one in each interval, from
    any mirror.
    """

    async def times_of_some_ms() -> list[int]:
        beats = (await read_partition(bootstrap, "heartbeats", 0)).records
        assert {beat.key for beat in beats[-5:]} == {like.key}
        of_both = [one for one in beats if one.key == like.key and one.timestamp_ms > like.timestamp_ms]
        assert len(of_both) > 3
        return [one.timestamp_ms for one in of_both]

    times_ms = await eventually(times_of_some_ms)
    seconds = (times_ms[-1] - times_ms[0]) / 1000
    assert len(times_ms) <= seconds + 2, f"{len(times_ms)} in {seconds} s"


async def reset(bootstrap: str, group: str) -> None:
    """Back to the beginning."""
    async with KafkaClient(bootstrap) as client:
        places = [(TOPIC, partition) for partition in range(PARTITIONS)]
        outcomes = await client.commit(group, dict.fromkeys(places, CommittedOffset(0, -1, "")))
    assert set(outcomes.values()) == {ErrorCode.none}


def texts(received: Sequence[Received]) -> list[str]:
    return sorted(one.value.decode() for one in received if one.value is not None)


async def is_copied(mirror: RunningProcess, link: str) -> None:
    """Wait as the guide asks of an operator: until the copy is complete and verified."""

    async def has_all() -> bool:
        rows = [one for one in (await describe_mirror(mirror)).partitions if one.topic == TOPIC]
        said = [(one.state, one.lag_records, one.reason) for one in rows]
        assert [(one.state, one.lag_records) for one in rows] == [("MIRRORING", 0)] * PARTITIONS, said
        return True

    await eventually(has_all)
    at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
    complete = await antipode("links", "complete", link, "--topic", TOPIC, "--wait", *at)
    assert complete["is_complete"]
    verified = await antipode("links", "verify", link, "--topic", TOPIC, *at)
    assert [one["verdict"] for one in verified] == ["equal"] * PARTITIONS, verified


async def stands_alike(source: str, target: str, group: str, read: Sequence[Received]) -> None:
    """Wait until the group's committed offsets at the target are behind all records that it has
    read.
    """

    async def is_carried() -> bool:
        async with KafkaClient(target) as client:
            committed = await client.committed(group)
        stands = {partition: at.offset for (_, partition), at in committed.items()}
        assert sum(stands.values()) == len(read), (stands, len(read))
        return True

    await eventually(is_carried)
