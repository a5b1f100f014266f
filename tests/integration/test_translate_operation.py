"""Translate links as operators run them: commands, and several daemons of one link."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from mirror.link.core.slots import SLOTS, Strategy
from mirror.sharing import group_sharing as sharing
from mirror.sharing.core.peers import Daemon, DaemonShare
from mirror.sharing.group_sharing import GroupSharing
from runtime.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.pairs.antipode_commands import antipode
from tests.support.pairs.mirror_calls import describe_mirror, mirror_ports
from tests.support.pairs.translate_links import (
    create_topic,
    produce_batches,
    read_partition,
    run_transactions,
    shares_of,
    start_translate_mirror,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes, RunningProcess
from wire.batches.record_batch import HEADER_SIZE, Compression
from wire.client.raw_client import KafkaClient

pytestmark = [pytest.mark.integration, pytest.mark.java]


async def test_an_operator_pauses_resumes_and_verifies(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "operated", 2)
    await asyncio.to_thread(run_transactions, source, "operated", 0)
    await produce_batches(source, "operated", 1, 0, 5, compression=Compression.GZIP)
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": "operated"})
    await wait_equal(source, target, "operated", 2)
    skipped = {0: 12 + 9, 1: 0}
    await eventually(lambda: have_left_out(mirror, skipped))
    at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
    paused = await antipode("links", "pause", "a-b", "--topic", "operated", *at)
    assert paused == {"link": "a-b", "paused_topics": ["operated"], "partitions": 2}
    described = await antipode("links", "describe", "a-b", *at)
    states = {one["topic"]: one["state"] for one in described["partitions"]}
    assert states["operated"] == "PAUSED"
    assert described["mode"] == "translate"
    counted = {one["partition"]: one for one in described["partitions"] if one["topic"] == "operated"}
    for partition, carried in {0: 24, 1: 25}.items():
        one = counted[partition]
        copies = (await read_partition(target, "a.operated", partition)).batches
        assert one["mirrored_bytes"] == sum(HEADER_SIZE + len(records) for _, records in copies)
        assert (one["mirrored_records"], one["skipped_records"]) == (carried, skipped[partition])
        assert bool(one["skipped_bytes"]) is bool(skipped[partition])
    await produce_batches(source, "operated", 1, 5, 5)
    resumed = await antipode("links", "resume", "a-b", *at)
    assert resumed["paused_topics"] == []
    await wait_equal(source, target, "operated", 2)
    complete = await antipode("links", "complete", "a-b", "--topic", "operated", "--wait", *at)
    assert complete["is_complete"]
    assert [(one["topic"], one["partitions_complete"]) for one in complete["topics"]] == [("operated", 2)]
    verified = await antipode("links", "verify", "a-b", "--topic", "operated", *at)
    assert [one["verdict"] for one in verified] == ["equal", "equal"], verified
    assert [one["records"] for one in verified] == [24, 50]
    last = await antipode("links", "verify", "a-b", "--topic", "operated", "--last", "10", *at)
    # the batch in which the last records begin is compared whole, and may be a merged one
    assert 10 <= last[1]["records"] <= 25


async def have_left_out(mirror: RunningProcess, wanted: Mapping[int, int]) -> bool:
    """Whether the mirror has come past so many records, aborted ones and markers, in each
    partition: they may come last.
    """
    reply = await describe_mirror(mirror)
    found = {one.partition: one.skipped_records for one in reply.partitions if one.topic == "operated"}
    assert found == wanted
    return True


@pytest.mark.long
async def test_daemons_with_different_filters_report_this_and_the_partitions_without_an_owner(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """Each knows the topics of its own filters only, and half of their partitions are in the other
    one's share.
    """
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    for topic in ("differing-one", "differing-two"):
        await create_topic(source, topic, 4)
    mirrors = [
        start_translate_mirror(
            processes,
            tmp_path,
            name,
            source,
            target,
            {"whitelist": f"differing-{name}", "link.name": "differing", "antipode.sharing.enabled": "true"},
        )
        for name in ("one", "two")
    ]
    for name, other, mirror in zip(("one", "two"), ("two", "one"), mirrors, strict=True):
        await eventually(partial(tells_other_filters, mirror, name, other))
        at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
        status = await antipode("links", "status", "differing", *at, is_well=False)
        assert (status["disagreements"], status["untaken_partitions"]) == (1, 2), status
    agreeing = {"whitelist": "differing-one", "link.name": "differing", "antipode.sharing.enabled": "true"}
    mirrors[1].kill()
    start_translate_mirror(processes, tmp_path, "three", source, target, agreeing)
    await eventually(partial(tells_nothing, mirrors[0]))


async def test_members_of_a_links_group_learn_the_failures_of_the_others_and_keep_their_slots(
    apache_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member's registered data change during its membership: the slots stay in their places."""
    monkeypatch.setattr(sharing, "REPORTED_AGAIN_MS", 500)
    members = [
        GroupSharing(
            KafkaClient(apache_kafka.bootstrap_servers),
            "failing",
            strategy=Strategy.STICKY,
            session_timeout_ms=6_000,
            clock=SystemClock(),
        )
        for _ in range(2)
    ]
    for name, member in zip(("m1", "m2"), members, strict=True):
        member.ownership.own = Daemon(name=name, settings={"whitelist": ".*"})
    tasks = [asyncio.create_task(member.run()) for member in members]
    first, second = (member.ownership for member in members)
    try:
        await eventually(lambda: len(first.slots) == len(second.slots) == SLOTS // 2)
        before = first.slots, second.slots
        assert not first.others
        for problem in ("billing: refused", ""):
            second.own = second.own._replace(problem=problem)
            reported = (DaemonShare(second.own, second.slots),) if problem else ()
            await eventually(lambda reported=reported: first.others == reported)
        assert (first.slots, second.slots) == before
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members:
            await member.close()


async def tells_other_filters(mirror: RunningProcess, name: str, other: str) -> bool:
    reply = await describe_mirror(mirror)
    assert {one.topic for one in reply.untaken_partitions} == {f"differing-{name}"}
    assert len(reply.untaken_partitions) == 2
    assert sum(one.topic == f"differing-{name}" for one in reply.partitions) == 2
    (differing,) = reply.disagreements
    assert (differing.key, differing.value, differing.value_there) == (
        "whitelist",
        f"differing-{name}",
        f"differing-{other}",
    )
    return True


async def tells_nothing(mirror: RunningProcess) -> bool:
    reply = await describe_mirror(mirror)
    assert sum(one.topic == "differing-one" for one in reply.partitions) == 2
    return not reply.untaken_partitions and not reply.disagreements


async def test_daemons_that_share_a_link_split_it_and_take_over_from_one_that_dies(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "shared", 6)
    settings = {"whitelist": "shared", "link.name": "shared", "antipode.sharing.enabled": "true"}
    mirrors = [start_translate_mirror(processes, tmp_path, name, source, target, settings) for name in ("one", "two")]
    await eventually(lambda: shares_of(mirrors, "shared", [3, 3]))
    for partition in range(6):
        await produce_batches(source, "shared", partition, 0, 20)
    await wait_equal(source, target, "shared", 6)
    mirrors[0].kill()
    for partition in range(6):
        await produce_batches(source, "shared", partition, 20, 20)
    await wait_equal(source, target, "shared", 6)
    mirrors[0].start()
    mirrors.append(start_translate_mirror(processes, tmp_path, "three", source, target, settings))
    await eventually(lambda: shares_of(mirrors, "shared", [2, 2, 2]))
    for partition in range(6):
        await produce_batches(source, "shared", partition, 40, 20)
    await wait_equal(source, target, "shared", 6)
    at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirrors[2])['grpc']}", "--output", "json"]

    async def is_its_share_equal() -> bool:
        verified = await antipode("links", "verify", "shared", "--topic", "shared", *at)
        assert [(one["verdict"], one["records"]) for one in verified] == [("equal", 300)] * 2, verified
        return True

    await eventually(is_its_share_equal)
