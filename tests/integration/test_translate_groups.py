"""Groups' offsets over a translate link: where groups are at the target, resets at the source."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from mirror.translate.notes.core.group_notes import StoredGroups
from mirror.translate.notes.group_notes import GROUPS_TOPIC_PREFIX
from mirror.translate.notes.offset_store import read_topic
from mirror.translate.offset_translator import OffsetTranslator
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.pairs.antipode_commands import antipode
from tests.support.pairs.mirror_calls import mirror_ports
from tests.support.pairs.translate_links import (
    create_topic,
    produce_batches,
    read_partition,
    run_transactions,
    start_translate_mirror,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_requests import CommittedOffset

pytestmark = [pytest.mark.integration, pytest.mark.java]


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

    await eventually(is_synced)
    await eventually(lambda: _is_translated(target, theirs.offsets))
    program = tmp_path / "TranslatedOffsets.java"
    program.write_text(TRANSLATED_OFFSETS, encoding="utf-8")

    async def does_java_agree() -> bool:
        printed = await asyncio.to_thread(kafka_programs.run_source, program, target, "a", "readers")
        *translated, upstream = printed.decode().split()
        assert translated == ["a.grouped-0", str(middle), "upstream"], printed
        assert "a" in upstream.split(","), printed
        return True

    await eventually(does_java_agree)


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
    await eventually(lambda: do_stand(target, f"a.{topic}", dict.fromkeys(groups, 20)))
    mirror.stop()
    await produce_batches(source, topic, 0, 4, 4)
    await stand(source, topic, dict.fromkeys(groups, 5))
    await stand(target, f"a.{topic}", {"resets-moved": 12})
    with consuming(target, f"a.{topic}", "resets-live"):
        mirror.start()
        await eventually(lambda: do_stand(target, f"a.{topic}", {"resets": 5}))
        at = ["--mirror", f"{LOOPBACK}:{mirror_ports(mirror)['grpc']}", "--output", "json"]
        reason = f"{topic}-0: 5 at the source; the group was reset at the source, but has also moved at the target"

        async def is_told() -> bool:
            described = await antipode("links", "describe", topic, *at)
            assert described["groups_ahead"] == {"resets-moved": reason}
            return "groups stay ahead of the source" in mirror.log_text()

        await eventually(is_told)
        await do_stand(target, f"a.{topic}", {"resets-moved": 12, "resets-live": 20})
        await eventually(lambda: is_noted(target, topic, "resets", 5))
    # Killed, so that nothing is noted on its way out.
    mirror.kill()
    await stand(source, topic, {"resets": 2})
    mirror.start()
    await eventually(lambda: do_stand(target, f"a.{topic}", {"resets": 2, "resets-moved": 12}))


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
