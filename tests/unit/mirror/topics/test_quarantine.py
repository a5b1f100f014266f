"""A mirror and the command line ask brokers to keep, list, read and delete removed records; the
brokers answer from a script.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kio.schema.errors import ErrorCode
from typer.testing import CliRunner

from mirror.link.ports import EndToKeep, Leader, Unreachable
from mirror.topics.quarantine import KafkaQuarantine
from tests.support.clients.scripted_cluster import ScriptedCluster
from tests.support.embedded.commands import app
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.quarantine_messages import DELETE, LIST, QUARANTINE, QUARANTINE_RECORDS, READ
from wire.protocol.streams.frames import RequestHeader, VersionRange

TOPIC_ID = uuid.UUID(int=7)
ENTRY = {
    "name": "0.cut.@7-0-3-30-31",
    "kind": "reset",
    "topic": "orders",
    "partition": 0,
    "first_offset": 30,
    "end_offset": 31,
    "topic_id": str(TOPIC_ID),
    "at_ms": 1_700_000_000_000,
    "reason": "histories diverge at offset 30",
    "origin_site": "b",
    "link": "a-b",
    "link_epoch": 3,
}


def end(node_id: int, first_offset: int = 30) -> EndToKeep:
    return EndToKeep(topic_id=TOPIC_ID, leader=Leader(node_id, 5), first_offset=first_offset)


async def keep(cluster: ScriptedCluster, ends: dict[TopicPartition, EndToKeep]) -> Any:
    async with KafkaClient(cluster.bootstrap) as client:
        return await KafkaQuarantine(client).keep(ends, link="a-b", link_epoch=3, reason="why")


def keeping(request: Any, refusals: dict[int, tuple[ErrorCode, str]]) -> dict[str, Any]:
    outcomes = []
    for topic in request.topics:
        assert (request.link, request.link_epoch, request.reason, topic.topic_id) == ("a-b", 3, "why", TOPIC_ID)
        for one in topic.partitions:
            code, message = refusals.get(one.index, (ErrorCode.none, None))
            outcomes.append(
                {"topic": topic.name, "index": one.index, "error_code": code, "error_message": message, "name": "n"}
            )
    return {"outcomes": outcomes}


async def test_each_leader_is_asked_for_its_partitions_and_refusals_come_by_partition() -> None:
    refusals = {2: (ErrorCode.policy_violation, "room for 5 bytes")}
    async with ScriptedCluster(nodes=2) as cluster:
        for broker in cluster.brokers.values():
            broker.on(QUARANTINE_RECORDS, lambda request, header: keeping(request, refusals), VersionRange(0, 0))
        keys = [TopicPartition("orders", index) for index in range(4)]
        ends = {keys[0]: end(1), keys[1]: end(2), keys[2]: end(2), keys[3]: end(-1)}
        outcomes = await keep(cluster, ends)
        assert outcomes == {
            keys[0]: "",
            keys[1]: "",
            keys[2]: "policy_violation: room for 5 bytes",
            keys[3]: "it has no leader",
        }
        assert [len(broker.requests(QUARANTINE_RECORDS)) for broker in cluster.brokers.values()] == [1, 1]


async def test_a_broker_that_says_nothing_of_a_partition_has_kept_nothing() -> None:
    async with ScriptedCluster() as cluster:
        cluster.brokers[1].on(QUARANTINE_RECORDS, lambda request, header: {"outcomes": ()}, VersionRange(0, 0))
        with pytest.raises(Unreachable, match="orders-0"):
            await keep(cluster, {TopicPartition("orders", 0): end(1)})


class Store:
    """One entry at the first broker."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.content = encode_batch([Record(None, b"written at b", 1)], base_offset=30)
        self.entries: list[dict[str, Any]] = [{**ENTRY, "size_bytes": len(self.content)}]
        for number, broker in cluster.brokers.items():
            broker.on(QUARANTINE, partial(self._answer, number), VersionRange(0, 0))

    def _answer(self, number: int, request: Any, _: RequestHeader) -> dict[str, Any]:
        answer: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None, "entries": (), "records": None}
        if request.action == LIST:
            return {**answer, "entries": self.entries if number == 1 else ()}
        assert (number, request.name) == (1, ENTRY["name"])
        if request.action == READ:  # in small pieces
            return {**answer, "records": self.content[request.position : request.position + 10]}
        assert request.action == DELETE
        self.entries = []
        return answer


async def run(cluster: ScriptedCluster, *arguments: str) -> Any:
    arguments = ("quarantine", *arguments, "--bootstrap-server", cluster.bootstrap)
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)


async def test_the_commands_list_export_and_delete_what_the_brokers_keep(tmp_path: Path) -> None:
    name, file = str(ENTRY["name"]), tmp_path / "exported.log"
    async with ScriptedCluster(nodes=2) as cluster:
        store = Store(cluster)
        (listed,) = json.loads((await run(cluster, "list", "--output", "json")).stdout)
        assert listed == {**ENTRY, "broker": 1, "size_bytes": len(store.content)}
        assert json.loads((await run(cluster, "list", "--topic", "other", "--output", "json")).stdout) == []
        listed_text = (await run(cluster, "list")).output
        assert name in listed_text.splitlines(), "a name stands whole in a line, so that it can be copied"
        assert "orders-0, offsets 30 to 31" in listed_text
        done = await run(cluster, "export", name, "--to", str(file))
        assert done.exit_code == 0, done.output
        assert await asyncio.to_thread(file.read_bytes) == store.content
        assert (await run(cluster, "export", name, "--to", str(file))).exit_code == 1, "a file is never overwritten"
        assert "would be deleted" in (await run(cluster, "delete", name, "--dry-run")).output
        assert store.entries
        assert (await run(cluster, "delete", name, "--yes")).exit_code == 0
        assert not store.entries
        assert (await run(cluster, "show", name)).exit_code == 1


MARKER = encode_batch([Record(b"\0\0\0\0", b"", 1)], base_offset=33, producer_id=1, producer_epoch=0, attributes=0x30)


async def test_the_records_of_an_entry_are_exported_for_other_programs(tmp_path: Path) -> None:
    name, lines, table = str(ENTRY["name"]), tmp_path / "exported.jsonl", tmp_path / "exported.parquet"
    records = [
        Record(b"k", b"written at b", 1_700_000_000_123, [("h", b"1")]),
        Record(None, b"\xff", 1_700_000_000_124),
        Record(b"gone", None, 1_700_000_000_125),
    ]
    async with ScriptedCluster(nodes=2) as cluster:
        store = Store(cluster)
        store.content = encode_batch(records, base_offset=30, leader_epoch=5) + MARKER
        store.entries = [{**ENTRY, "first_offset": 31, "end_offset": 34, "size_bytes": len(store.content)}]
        done = await run(cluster, "export", name, "--to", str(lines), "--as", "json-lines", "--output", "json")
        assert json.loads(done.stdout)["records"] == 2, done.output
        done = await run(cluster, "export", name, "--to", str(table), "--as", "parquet")
        assert "2 records of orders-0" in done.output
        again = await run(cluster, "export", name, "--to", str(table), "--as", "parquet")
        assert (again.exit_code, "File exists" in again.output) == (1, True)
    text = await asyncio.to_thread(lines.read_text)
    assert [json.loads(line) for line in text.splitlines()] == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 31,
            "timestamp_ms": 1_700_000_000_124,
            "key": None,
            "value_base64": "/w==",
            "headers": [],
            "leader_epoch": 5,
        },
        {
            "topic": "orders",
            "partition": 0,
            "offset": 32,
            "timestamp_ms": 1_700_000_000_125,
            "key": "gone",
            "value": None,
            "headers": [],
            "leader_epoch": 5,
        },
    ]
    rows = pq.read_table(table).to_pylist()
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (31, None, b"\xff", []),
        (32, b"gone", None, []),
    ]
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000.124


@pytest.mark.parametrize("form", ["json-lines", "parquet"])
async def test_an_export_that_finds_a_damaged_batch_leaves_no_half_file(form: str, tmp_path: Path) -> None:
    name, file = str(ENTRY["name"]), tmp_path / "exported"
    sound = encode_batch([Record(b"k", b"v", 1)], base_offset=30, leader_epoch=5)
    damaged = bytearray(encode_batch([Record(b"k", b"v", 1)], base_offset=31, leader_epoch=5))
    damaged[-1] ^= 0xFF
    async with ScriptedCluster(nodes=2) as cluster:
        store = Store(cluster)
        store.content = sound + bytes(damaged)
        store.entries = [{**ENTRY, "first_offset": 30, "end_offset": 32, "size_bytes": len(store.content)}]
        done = await run(cluster, "export", name, "--to", str(file), "--as", form)
    assert done.exit_code == 1, done.output
    assert not file.exists()
