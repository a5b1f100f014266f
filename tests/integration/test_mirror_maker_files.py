"""The mirror runs files of MirrorMaker 2 unchanged, with one link and with several, and clients
find the topics of MirrorMaker 2.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.eventually import eventually
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    ROOT,
    create_topic,
    produce_batches,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = [pytest.mark.integration, pytest.mark.java]


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
    """With the settings that the sample has as comments: a separator, and names of internal topics
    that do not contain the separator (before KIP-690).
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
    await eventually(lambda: _are_both_on_one_page(metrics_port))
    await eventually(lambda: _is_timed(metrics_port, 'group="sample-readers",partition="0",source="A"'))
    program = tmp_path / "Topics.java"
    program.write_text(TOPICS_OF_MIRROR_MAKER, encoding="utf-8")

    async def does_java_find_them() -> bool:
        found = (await asyncio.to_thread(kafka_programs.run_source, program, back, "A", "sample-readers")).decode()
        assert found.split() == ["A.checkpoints.internal", "A", "A_sample-of-a-0", "7"], found
        return True

    await eventually(does_java_find_them)

    async def are_all_there() -> bool:
        async with KafkaClient(there) as client:
            names = set((await client.metadata()).topics)
        assert {"mm2-offset-syncs.B.internal", "B.checkpoints.internal", "B_heartbeats"} <= names
        assert not [name for name in names if name.startswith("B_A_") or name.endswith("_internal")], names
        return True

    await eventually(are_all_there)


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
"""Kafka's own client of MirrorMaker 2's topics, with the names of these topics."""
