"""Translate links as operators and other programs meet them: commands, MirrorMaker 2's file and
reader, several daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from mirror.link.core.slots import SLOTS, Strategy
from mirror.sharing import group_sharing as sharing
from mirror.sharing.core.peers import Daemon, DaemonShare
from mirror.sharing.group_sharing import Sharing
from mirror.translate.notes.core.group_notes import StoredGroups
from mirror.translate.notes.group_notes import GROUPS_TOPIC_PREFIX
from mirror.translate.notes.offset_store import read_topic
from mirror.translate.offset_translator import OffsetTranslator
from runtime.clock import SystemClock
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.pairs.mirror_sites import describe_mirror, mirror_ports, start_lone_site
from tests.support.pairs.translate_links import (
    ROOT,
    create_topic,
    produce_batches,
    read_partition,
    run_transactions,
    shares_of,
    start_translate_mirror,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes, RunningProcess
from wire.batches.record_batch import HEADER_SIZE, Compression
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.timeout(300)]


async def test_groups_stand_at_the_same_records_and_java_s_checkpoint_reader_agrees(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    kafka_programs: KafkaPrograms,
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "grouped", 1)
    await asyncio.to_thread(run_transactions, source, "grouped", 0)
    theirs = await read_partition(source, "grouped", 0)
    middle = len(theirs.offsets) // 2
    async with KafkaClient(source) as client:
        outcomes = await client.commit("readers", {("grouped", 0): CommittedOffset(theirs.offsets[middle], -1, "note")})
        assert set(outcomes.values()) == {ErrorCode.none}
    settings = {"whitelist": "grouped", "groups": "readers"}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "grouped")

    async def is_synced() -> bool:
        async with KafkaClient(target) as client:
            committed = await client.committed("readers")
            assert ("a.grouped", 0) in committed, "nothing committed yet"
            at = committed["a.grouped", 0]
            assert (at.offset, at.metadata) == (middle, "note"), at
            return True

    await eventually(is_synced, 60_000)
    await eventually(lambda: _is_translated(target, theirs.offsets), 60_000)
    program = tmp_path / "TranslatedOffsets.java"
    program.write_text(TRANSLATED_OFFSETS, encoding="utf-8")

    async def does_java_agree() -> bool:
        printed = await asyncio.to_thread(kafka_programs.run_source, program, target, "a", "readers")
        *translated, upstream = printed.decode().split()
        assert translated == ["a.grouped-0", str(middle), "upstream"], printed
        assert "a" in upstream.split(","), printed
        return True

    await eventually(does_java_agree, 60_000)


async def _is_translated(target: str, offsets: Sequence[int]) -> bool:
    """The records of the source are numbered from 0 at the target: asked both ways, by Python and
    by the command.
    """
    async with KafkaClient(target) as client:
        translator = await OffsetTranslator.read(client, "a-b")
    there = [translator.downstream("grouped", 0, offset).offset for offset in offsets]
    assert there == list(range(len(offsets)))
    assert [translator.upstream("a.grouped", 0, offset).offset for offset in there] == list(offsets)
    command = ["links", "translate-offset", "a-b", "--topic", "a.grouped", "--offset", "1", "--upstream", "-o", "json"]
    ended = await asyncio.to_thread(CliRunner().invoke, app, [*command, "-b", target])
    assert json.loads(ended.stdout) == {
        "topic": "grouped",
        "partition": 0,
        "offset": offsets[1],
        "is_known": True,
        "opposite": "not asked",
    }
    return True


TRANSLATED_OFFSETS = """
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class TranslatedOffsets {
    public static void main(String[] given) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", given[0]);
        RemoteClusterUtils.translateOffsets(properties, given[1], given[2], Duration.ofSeconds(15))
            .forEach((place, at) -> System.out.println(place + " " + at.offset()));
        System.out.println("upstream " + String.join(",", RemoteClusterUtils.upstreamClusters(properties)));
        System.exit(0);
    }
}
"""
"""Kafka's own client of MirrorMaker 2's topics, asked at the target."""


async def test_a_group_reset_at_the_source_while_the_mirror_was_down_goes_back_unless_it_has_worked_at_the_target(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    topic, groups = "went-back", ("resets", "resets-moved", "resets-live")
    await create_topic(source, topic, 1)
    await produce_batches(source, topic, 0, 0, 4)
    await stand(source, topic, dict.fromkeys(groups, 20))
    mirror = start_translate_mirror(
        processes, tmp_path, "mirror", source, target, {"link.name": topic, "whitelist": topic, "groups": "resets.*"}
    )
    await eventually(lambda: do_stand(target, f"a.{topic}", dict.fromkeys(groups, 20)), 60_000)
    mirror.stop()
    await produce_batches(source, topic, 0, 4, 4)
    await stand(source, topic, dict.fromkeys(groups, 5))
    await stand(target, f"a.{topic}", {"resets-moved": 12})
    with consuming(target, f"a.{topic}", "resets-live"):
        mirror.start()
        await eventually(lambda: do_stand(target, f"a.{topic}", {"resets": 5}), 60_000)
        at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
        reason = f"{topic}-0: 5 at the source; the group was reset at the source, but has also moved at the target"

        async def is_told() -> bool:
            described = await antipode("links", "describe", topic, *at)
            assert described["groups_ahead"] == {"resets-moved": reason}
            return "groups stay ahead of the source" in mirror.log_text()

        await eventually(is_told, 60_000)
        await do_stand(target, f"a.{topic}", {"resets-moved": 12, "resets-live": 20})
        await eventually(lambda: is_noted(target, topic, "resets", 5), 60_000)
    # Killed, so that nothing is noted on its way out.
    mirror.kill()
    await stand(source, topic, {"resets": 2})
    mirror.start()
    await eventually(lambda: do_stand(target, f"a.{topic}", {"resets": 2, "resets-moved": 12}), 60_000)


async def stand(bootstrap: str, topic: str, offsets: Mapping[str, int]) -> None:
    """Give groups without members these offsets."""
    async with KafkaClient(bootstrap) as client:
        for group, offset in offsets.items():
            outcomes = await client.commit(group, {(topic, 0): CommittedOffset(offset, -1, "")})
            assert set(outcomes.values()) == {ErrorCode.none}, outcomes


async def do_stand(bootstrap: str, topic: str, offsets: Mapping[str, int]) -> bool:
    async with KafkaClient(bootstrap) as client:
        found = {group: (await client.committed(group)).get((topic, 0)) for group in offsets}
    assert {group: at and at.offset for group, at in found.items()} == offsets
    return True


async def is_noted(bootstrap: str, link: str, group: str, source_offset: int) -> bool:
    """Whether the link's next daemon will know that the group stood alike at both ends when it had
    this offset at the source.
    """
    stored = StoredGroups()
    async with KafkaClient(bootstrap) as client:
        await read_topic(client, GROUPS_TOPIC_PREFIX + link, stored.apply)
    return [note.source_offset for (name, _), note in stored.notes.items() if name == group] == [source_offset]


@contextlib.contextmanager
def consuming(bootstrap: str, topic: str, group: str) -> Iterator[None]:
    """A member of the group that has partitions and commits nothing."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": "false"})
    consumer.subscribe([topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


async def test_a_mirror_maker_file_runs_as_it_is(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "as-it-is", 1)
    await produce_batches(source, "as-it-is", 0, 0, 5)
    file = tmp_path / "connect-mirror-maker.properties"
    file.write_text(
        f"""
        clusters = east, west
        east.bootstrap.servers = {source}
        west.bootstrap.servers = {target}
        east->west.enabled = true
        east->west.topics = as-it.*
        west->east.enabled = false
        replication.factor = 1
        checkpoints.topic.replication.factor = 1
        tasks.max = 4
        sync.topic.acls.enabled = false
        antipode.allow.plaintext = true
        """,
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "cli.main", "mirror", "--config", str(file)]
    mirror = processes.run_command("antipode", command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    await wait_equal(source, target, "as-it-is", target_topic="east.as-it-is")
    said = mirror.log_text()
    assert "tasks.max: not needed" in said
    assert "sync.topic.acls.enabled: used" in said
    mirror.stop()
    assert mirror.exit_code == 0


async def test_a_mirror_maker_file_brings_several_sources_to_one_target_in_one_process(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """MM-26. The sources have a topic of one name, and the target reads none of its own back."""
    hub = (await start_lone_site(processes, tmp_path, "hub")).bootstrap
    sources = {"east": apache_kafka.bootstrap_servers, "west": kafka_b.bootstrap_servers}
    for number, bootstrap in enumerate(sources.values()):
        await create_topic(bootstrap, "gathered", 2)
        await produce_batches(bootstrap, "gathered", number, 10 * number, 5)
    (metrics_port,) = free_ports(1)
    file = tmp_path / "connect-mirror-maker.properties"
    file.write_text(
        f"""
        clusters = east, west, hub
        east.bootstrap.servers = {sources["east"]}
        west.bootstrap.servers = {sources["west"]}
        hub.bootstrap.servers = {hub}
        east->hub.enabled = true
        west->hub.enabled = true
        hub->east.enabled = false
        topics = gathered
        replication.factor = 1
        antipode.metrics.listener = {LOOPBACK}:{metrics_port}
        antipode.allow.plaintext = true
        """,
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "cli.main", "mirror", "--config", str(file)]
    mirror = processes.run_command("antipode", command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    for alias, bootstrap in sources.items():
        await wait_equal(bootstrap, hub, "gathered", 2, target_topic=f"{alias}.gathered")
        await produce_batches(bootstrap, "gathered", 0, 20, 3)
        await wait_equal(bootstrap, hub, "gathered", 2, target_topic=f"{alias}.gathered")
        assert f'antipode_mirror_bytes_total{{link="{alias}-hub",partition="0",' in _page(metrics_port)
    async with KafkaClient(sources["west"]) as client:
        assert not [name for name in (await client.metadata()).topics if name.endswith("east.gathered")]
    mirror.stop()
    assert mirror.exit_code == 0


async def test_the_sample_file_of_kafka_s_distribution_mirrors_both_ways_and_java_s_client_finds_its_topics(
    apache_kafka: ApacheKafka,
    kafka_b: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    kafka_programs: KafkaPrograms,
) -> None:
    """With what it offers as comments, a separator, and names of internal topics from before
    separators counted for them (KIP-690).
    """
    there, back = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    for bootstrap, topic in ((there, "sample-of-a"), (back, "sample-of-b")):
        await create_topic(bootstrap, topic, 1)
        await produce_batches(bootstrap, topic, 0, 0, 2)
    async with KafkaClient(there) as client:
        await client.commit("sample-readers", {("sample-of-a", 0): CommittedOffset(7, -1, "")})
    file = tmp_path / "connect-mirror-maker.properties"
    (metrics_port,) = free_ports(1)
    file.write_text(SAMPLE.format(there=there, back=back, metrics=f"{LOOPBACK}:{metrics_port}"), encoding="utf-8")
    command = [sys.executable, "-m", "cli.main", "mirror", "--config", str(file)]
    mirror = processes.run_command("antipode", command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    await wait_equal(there, back, "sample-of-a", target_topic="A_sample-of-a")
    await wait_equal(back, there, "sample-of-b", target_topic="B_sample-of-b")
    for key in ("replication.policy.separator", "replication.policy.internal.topic.separator.enabled", "B->A.topics"):
        assert f"{key}: used" in mirror.log_text()
    await eventually(lambda: _are_both_on_one_page(metrics_port), 60_000)
    await eventually(lambda: _is_timed(metrics_port, 'group="sample-readers",partition="0",source="A"'), 60_000)
    program = tmp_path / "Topics.java"
    program.write_text(TOPICS_OF_MIRROR_MAKER, encoding="utf-8")

    async def does_java_find_them() -> bool:
        found = (await asyncio.to_thread(kafka_programs.run_source, program, back, "A", "sample-readers")).decode()
        assert found.split() == ["A.checkpoints.internal", "A", "A_sample-of-a-0", "7"], found
        return True

    await eventually(does_java_find_them, 60_000)

    async def are_all_there() -> bool:
        async with KafkaClient(there) as client:
            names = set((await client.metadata()).topics)
        assert {"mm2-offset-syncs.B.internal", "B.checkpoints.internal", "B_heartbeats"} <= names
        assert not [name for name in names if name.startswith("B_A_") or name.endswith("_internal")], names
        return True

    await eventually(are_all_there, 60_000)


def _page(port: int) -> str:
    text: bytes = urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30).read()
    return text.decode()


def _is_timed(port: int, place: str) -> bool:
    """A checkpoint."""
    return f"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms_avg{{{place}" in _page(port)


def _are_both_on_one_page(port: int) -> bool:
    """Ten records each way."""
    page = _page(port)
    for source, target in (("A", "B"), ("B", "A")):
        place = f'{{partition="0",source="{source}",target="{target}",topic="{source}_sample-of-{source.lower()}"}}'
        assert f"kafka_connect_mirror_mirrorsourceconnector_record_count{place} 10.0" in page
        labels = place.strip("{}").replace('",topic', '",task="0",topic')
        assert f'kafka_connect_plugins_record_count{{connector="MirrorSourceConnector",{labels}}} 10.0' in page
    return True


SAMPLE = """
clusters = A, B
A.bootstrap.servers = {there}
B.bootstrap.servers = {back}
A->B.enabled = true
A->B.topics = sample-.*
B->A.enabled = true
B->A.topics = sample-.*
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
replication.policy.separator = _
sync.topic.acls.enabled = false
emit.heartbeats.interval.seconds = 5
replication.policy.internal.topic.separator.enabled = false
emit.checkpoints.interval.seconds = 1
refresh.topics.interval.seconds = 1
metric.names.formats = legacy, new
antipode.metrics.listener = {metrics}
antipode.allow.plaintext = true
"""
"""Kafka's config/connect-mirror-maker.properties, with six lines more; topics are those of the
test.
"""

TOPICS_OF_MIRROR_MAKER = """
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

public class Topics {
    public static void main(String[] given) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", given[0], "replication.policy.separator", "_",
            "replication.policy.internal.topic.separator.enabled", "false");
        RemoteClusterUtils.checkpointTopics(properties).stream().filter(name -> name.startsWith(given[1]))
            .forEach(System.out::println);
        RemoteClusterUtils.upstreamClusters(properties).stream().sorted().forEach(System.out::println);
        RemoteClusterUtils.translateOffsets(properties, given[1], given[2], Duration.ofSeconds(15))
            .forEach((place, at) -> System.out.println(place + " " + at.offset()));
        System.exit(0);
    }
}
"""
"""Kafka's own client of MirrorMaker 2's topics, told how those are named."""


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
    await eventually(lambda: have_left_out(mirror, skipped), 60_000)
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
    assert [one["records"] for one in last][1] == 10


async def have_left_out(mirror: RunningProcess, wanted: Mapping[int, int]) -> bool:
    """Whether the mirror has come past so many records, aborted ones and markers, in each
    partition: they may come last.
    """
    reply = await describe_mirror(mirror)
    found = {one.partition: one.skipped_records for one in reply.partitions if one.topic == "operated"}
    assert found == wanted
    return True


async def antipode(*arguments: str, is_well: bool = True) -> Any:
    """A command's JSON; it ends with 0 where all is well."""
    command = [sys.executable, "-m", "cli.main", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, complaint = await process.communicate()
    assert process.returncode == (0 if is_well else 1), complaint.decode()
    return json.loads(printed)


@pytest.mark.long
async def test_daemons_of_a_link_with_different_filters_tell_so_and_what_nobody_mirrors(
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
        await eventually(partial(tells_other_filters, mirror, name, other), 60_000)
        at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
        status = await antipode("links", "status", "differing", *at, is_well=False)
        assert (status["disagreements"], status["untaken_partitions"]) == (1, 2), status
    agreeing = {"whitelist": "differing-one", "link.name": "differing", "antipode.sharing.enabled": "true"}
    mirrors[1].kill()
    start_translate_mirror(processes, tmp_path, "three", source, target, agreeing)
    await eventually(partial(tells_nothing, mirrors[0]), 60_000)


async def test_members_of_a_links_group_hear_at_what_the_others_fail_and_keep_their_slots(
    apache_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a member says of itself changes while it is one: the slots stay where they are."""
    monkeypatch.setattr(sharing, "REPORTED_AGAIN_MS", 500)
    members = [
        Sharing(
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
        await eventually(lambda: len(first.slots) == len(second.slots) == SLOTS // 2, 30_000)
        before = first.slots, second.slots
        assert not first.others
        for problem in ("billing: refused", ""):
            second.own = second.own._replace(problem=problem)
            reported = (DaemonShare(second.own, second.slots),) if problem else ()
            await eventually(lambda reported=reported: first.others == reported, 30_000)
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
    await eventually(lambda: shares_of(mirrors, "shared", [3, 3]), 60_000)
    for partition in range(6):
        await produce_batches(source, "shared", partition, 0, 20)
    await wait_equal(source, target, "shared", 6)
    mirrors[0].kill()
    for partition in range(6):
        await produce_batches(source, "shared", partition, 20, 20)
    await wait_equal(source, target, "shared", 6)
    mirrors[0].start()
    mirrors.append(start_translate_mirror(processes, tmp_path, "three", source, target, settings))
    await eventually(lambda: shares_of(mirrors, "shared", [2, 2, 2]), 60_000)
    for partition in range(6):
        await produce_batches(source, "shared", partition, 40, 20)
    await wait_equal(source, target, "shared", 6)
    at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirrors[2])['grpc']}", "--output", "json"]

    async def is_its_share_equal() -> bool:
        verified = await antipode("links", "verify", "shared", "--topic", "shared", *at)
        assert [(one["verdict"], one["records"]) for one in verified] == [("equal", 300)] * 2, verified
        return True

    await eventually(is_its_share_equal, 60_000)
