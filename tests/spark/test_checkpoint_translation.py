"""`antipode checkpoint translate` over a real translate link, whose two ends have other offsets.

Promised: the copy continues at the first record that the query had not read, both ways; a batch
that had not ended is left out; the old checkpoint stays as it is; Spark takes the copy.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark_jobs.connector.checkpoint_files import Checkpoint
from tests.support.clients.kafka_clients import delete_records
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.pairs.translate_links import (
    create_topic,
    produce_batches,
    read_partition,
    start_translate_mirror,
)
from tests.support.processes.processes import Processes

TOPIC = "carried"
READ = 30
"""The records that the query has read at the source."""
DELETED = 10
"""Records that the source deleted before the link: the target's offsets are lower by so many."""
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def write_checkpoint(directory: Path, topic: str, offset: int) -> None:
    """A checkpoint as Spark leaves it when batch 1 did not end."""
    for part in ("offsets", "commits"):
        (directory / part).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000001"}')
    epochs = json.dumps({topic: {"0": offset}, f"{topic} (leader epochs)": {"0": 0}})
    (directory / "offsets" / "0").write_text(f"v1\n{METADATA}\n{epochs}\n-")
    (directory / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (directory / "offsets" / "1").write_text(f"v1\n{METADATA}\n" + json.dumps({topic: {"0": offset + 20}}) + "\n-")


def translated(directory: Path, to: Path, bootstrap: str, *options: str) -> dict[str, dict[str, int]]:
    """The offsets of the copy."""
    command = ["checkpoint", "translate", str(directory), "--link", "a-b", "--to", str(to), "-b", bootstrap]
    ended = CliRunner().invoke(app, [*command, "--output", "json", *options])
    assert ended.exit_code == 0, (ended.output, ended.exception)
    assert json.loads(ended.stdout)["batch"] == 0
    assert sorted(file.name for file in (to / "offsets").iterdir()) == ["0"]
    assert (to / "metadata").read_text() == (directory / "metadata").read_text()
    version, metadata, offsets, other = (to / "offsets" / "0").read_text().splitlines()
    assert (version, metadata, other) == ("v1", METADATA, "-")
    found: dict[str, dict[str, int]] = json.loads(offsets)
    return found


async def test_a_copy_of_a_checkpoint_goes_on_at_the_other_end(
    brokers: tuple[LoneBroker, LoneBroker], processes: Processes, tmp_path: Path
) -> None:
    source, target = (broker.bootstrap for broker in brokers)
    await create_topic(source, TOPIC)
    await produce_batches(source, TOPIC, 0, 0, 12)
    await asyncio.to_thread(delete_records, source, TOPIC, DELETED)
    start_translate_mirror(processes, tmp_path, "mirror", source, target, {"whitelist": TOPIC})

    async def is_noted() -> bool:
        ours, theirs = await read_partition(source, TOPIC, 0), await read_partition(target, f"a.{TOPIC}", 0)
        assert len(theirs.records) == len(ours.records) == 60 - DELETED
        command = ["links", "translate-offset", "a-b", "--topic", TOPIC, "--offset", "59", "-o", "json", "-b", target]
        ended = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert ended.exit_code == 0, ended.output
        assert json.loads(ended.stdout)["is_known"], ended.stdout
        return True

    await eventually(is_noted)
    there, back = tmp_path / "there", tmp_path / "back"
    write_checkpoint(tmp_path / "here", TOPIC, READ)
    before = (tmp_path / "here" / "offsets" / "0").read_text()
    found = await asyncio.to_thread(translated, tmp_path / "here", there, target)
    assert found == {f"a.{TOPIC}": {"0": READ - DELETED}}
    assert (tmp_path / "here" / "offsets" / "0").read_text() == before
    found = await asyncio.to_thread(translated, there, back, target, "--upstream")
    assert found == {TOPIC: {"0": READ}}
    command = ["checkpoint", "translate", str(tmp_path / "here"), "--link", "a-b", "--to", str(there), "-b", target]
    refused = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert refused.exit_code != 0


def test_a_query_goes_on_from_a_copy_after_several_batches(spark: SparkSession, tmp_path: Path) -> None:
    lines, there = tmp_path / "lines", tmp_path / "there"
    lines.mkdir()
    read: list[str] = []

    def run(number: int, checkpoint: Path) -> None:
        (lines / f"{number}.txt").write_text(f"line {number}\n")
        stream = spark.readStream.text(str(lines)).writeStream.foreachBatch(
            lambda rows, _: read.extend(row.value for row in rows.collect())
        )
        query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    for number in range(3):
        run(number, tmp_path / "here")
    Checkpoint(tmp_path / "here").copy(there, lambda offsets: offsets)
    run(3, there)
    assert read == [f"line {number}" for number in range(4)]
