"""Stores the records of road checkpoints, rejects and counts bad records, reports watched plates,
and executes commands.

    spark-submit spark_jobs/pipelines/road_ingest.py --bootstrap-server host:port --site a
        --to /var/road --checkpoint DIRECTORY

    data topic ──▶ valid? ─┬─ yes ─▶ TO/stored/batch=N      watched? ──▶ alerts topic,
    TO/alerts/batch=N
                           └─ no ──▶ TO/rejected/batch=N, dead-letter topic
                             both ─▶ counts topic: produced = stored + rejected
    control topic ──▶ TO/commands/site=S/batch=N.json ──▶ analyse: reads the payload, TO/results

The data topic is mirrored, the control topic is not: after a failover, operators repeat their
commands at the promoted site. So the two topics have a query each, and that of the control topic
has a checkpoint of its own at each site. Directories of a batch are written again when the batch is
run again; the dead-letter and the alerts topic may have a record twice then. Without --site the
commands are those of all sites.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from runtime.process import OperationalFailure
from spark_jobs.connector.topic_frames import TopicSource, stream_of, write_records
from spark_jobs.pipelines.catalogue import (
    add_loss_option,
    add_stream_options,
    at_least,
    loss_options,
    submitted,
    topic_parser,
    trigger_of,
)
from spark_jobs.pipelines.core.contracts import RecordSchema
from spark_jobs.pipelines.core.road_records import ANALYSE, Command, command_of, rejection, watched_since
from spark_jobs.pipelines.data_contracts import load_contract, own_contract
from spark_jobs.streaming import run_queries

MINUTE_MS: Final = 60_000
TIER: Final = "road-ingest"
SCHEMA: Final = "sighting"
"""The schema of the contract whose records the data topic has."""
NEEDED: Final = frozenset({"checkpoint_id", "plate", "capture_time"})
ADDED: Final = ("capture_ms", "ingest_ms", "topic", "partition", "offset")
"""Columns of the stored table beside the fields of a record."""
NO_FILE_SYSTEM: Final = "org.apache.hadoop.fs.UnsupportedFileSystemException"
"""Hadoop's exception for an address whose scheme no file system has."""
_SQL_TYPES: Final = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Store the records of road checkpoints, and carry out commands.")
    found.add_argument("--site", default="here", help="the site of the control topic; its commands count here alone")
    found.add_argument("--data", default="road-data", help="the data topic")
    found.add_argument("--control", default="road-control", help="the control topic")
    found.add_argument("--dead-letter", default="road-dead-letter", help="topic for records that are rejected")
    found.add_argument("--alerts", default="road-alerts", help="topic for sightings of watched plates")
    found.add_argument("--counts", default="", help="topic for counts, which antipode audit reads; empty: none")
    found.add_argument("--to", required=True, type=Path, help="directory of the tables")
    found.add_argument(
        "--contract", type=Path, help="data contract with schema sighting [default: contracts/road.yaml]"
    )
    found.add_argument("--records-max", type=at_least(1), default=10_000, help="records in one write")
    found.add_argument(
        "--records-min", type=at_least(1), default=1, help="records of the data topic that are worth a write"
    )
    found.add_argument(
        "--wait-max-ms", type=at_least(1), default=60_000, help="a write waits at most so long for --records-min"
    )
    add_stream_options(found)
    add_loss_option(found)
    found.check = _contradiction
    found.topics = ("data", "control")
    return found


def _contradiction(given: argparse.Namespace) -> str | None:
    if given.records_min > given.records_max:
        return f"--records-min {given.records_min} is above --records-max {given.records_max}: no write could begin"
    return None


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Run both queries; returns when they end."""
    schema = sighting_schema(given.contract)
    take = partial(_take_commands, spark, given)
    at_most = {"maxOffsetsPerTrigger": str(given.records_max), **loss_options(given)}
    control = partial(
        _started, spark, given, topic=given.control, name=f"control-{given.site}", options=at_most, work=take
    )
    options = at_most | limits(given)
    data = partial(
        _started, spark, given, topic=given.data, name="data", options=options, work=partial(_ingest, given, schema)
    )
    if given.once:
        run_queries(control)
        run_queries(data)
    else:
        run_queries(control, data)
    return f"stored the records of {given.data} in {given.to}"


def sighting_schema(contract: Path | None) -> RecordSchema:
    """The schema of the data topic, from a contract or from the project's own one.
    OperationalFailure.
    """
    found = (own_contract("road") if contract is None else load_contract(contract)).schemas.get(SCHEMA)
    if found is None:
        raise OperationalFailure(f"--contract {contract} has no schema {SCHEMA}")
    types = {field.name: field.type for field in found.fields if not field.is_optional}
    for name in sorted(NEEDED):
        if types.get(name) != "string":
            raise OperationalFailure(f"--contract {contract}: schema {SCHEMA} needs the field {name}, a string")
    for field in found.fields:
        if field.name in ADDED:
            raise OperationalFailure(f"--contract {contract}: the field {field.name} is a column of the ingest")
    return found


def limits(given: argparse.Namespace) -> dict[str, str]:
    """Options of the data stream: a write begins when enough records wait or when the time is over.
    A run with --once stores what is there.
    """
    if given.once:
        return {}
    return {"minOffsetsPerTrigger": str(given.records_min), "maxTriggerDelay": f"{given.wait_max_ms}ms"}


def _started(
    spark: SparkSession, given: argparse.Namespace, *, topic: str, name: str, options: dict[str, str], work: Any
) -> Any:
    source = TopicSource(bootstrap=given.bootstrap_server, topics=topic, is_list=True, options=options)
    return (
        stream_of(spark, source)
        .writeStream.queryName(f"road-ingest {name}")
        .option("checkpointLocation", f"{given.checkpoint}/{name}")
        .foreachBatch(work)
        .trigger(**trigger_of(given))
        .start()
    )


# Data.


def _ingest(given: argparse.Namespace, schema: RecordSchema, records: DataFrame, batch: int) -> None:
    now_ms = round(time.time() * 1000)
    judged = judged_records(records, schema, now_ms).persist()
    try:
        stored, rejected = judged.where("reason is null"), judged.where("reason is not null")
        sightings = watched(stored, watched_since(commands_in(given.to, given.site)))
        _write(stored.select(*(field.name for field in schema.fields), *ADDED), given, "stored", batch)
        _write(rejected.select("reason", "value", "topic", "partition", "offset"), given, "rejected", batch)
        _write(sightings, given, "alerts", batch)
        if given.counts:
            write_records(_counted(judged, given.data, batch), bootstrap=given.bootstrap_server, topic=given.counts)
        write_records(rejected.select("key", "value"), bootstrap=given.bootstrap_server, topic=given.dead_letter)
        alerts = sightings.select(F.to_json(F.struct("*")).cast("binary").alias("value"))
        write_records(alerts, bootstrap=given.bootstrap_server, topic=given.alerts)
    finally:
        judged.unpersist()


def judged_records(records: DataFrame, schema: RecordSchema, now_ms: int) -> DataFrame:
    """The records with their fields, and `reason` where they are rejected."""
    judge = F.udf(partial(rejection, now_ms=now_ms, schema=schema), "string", useArrow=False)
    columns = ", ".join(f"`{field.name}` {_SQL_TYPES[field.type]}" for field in schema.fields)
    fields = F.from_json(F.col("value").cast("string"), columns)
    parsed = records.select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("sent_ms"),
        judge("value").alias("reason"),
        fields.alias("record"),
    )
    # with the zone in the text, the zone of the session has no part in it
    captured = F.unix_millis(F.try_to_timestamp(F.concat("capture_time", F.lit("Z"))))
    return (
        parsed.select("*", "record.*")
        .drop("record")
        .withColumn("capture_ms", captured)
        .withColumn("ingest_ms", F.lit(now_ms).cast("bigint"))
    )


def watched(stored: DataFrame, since_ms: dict[str, int]) -> DataFrame:
    """Sightings of watched plates that were sent since the command."""
    spark = stored.sparkSession
    plates = spark.createDataFrame(list(since_ms.items()), "plate string, since_ms bigint")
    found = stored.join(F.broadcast(plates), "plate").where("sent_ms >= since_ms")
    delay = (F.col("ingest_ms") - F.col("capture_ms")).alias("delay_ms")
    return found.select("plate", "checkpoint_id", "capture_time", delay, "topic", "partition", "offset")


def _counted(judged: DataFrame, topic: str, batch: int) -> DataFrame:
    """A message a window: topic and number of the batch make it the same one when the batch is run
    again, and another one than that of an ingest of another topic.
    """
    window = (F.floor(F.greatest("sent_ms", F.lit(0)) / MINUTE_MS) * MINUTE_MS).cast("bigint")
    sums = judged.groupBy(window.alias("window_start_ms")).agg(
        F.count(F.when(F.col("reason").isNull(), 1)).alias("stored"), F.count("reason").alias("rejected")
    )
    message = F.struct(
        F.concat_ws("-", F.lit(TIER), F.lit(topic), F.lit(batch), "window_start_ms").alias("id"),
        F.lit(TIER).alias("tier"),
        F.lit(topic).alias("topic"),
        "window_start_ms",
        "stored",
        "rejected",
    )
    return sums.select(F.to_json(message).cast("binary").alias("value"))


def _write(rows: DataFrame, given: argparse.Namespace, table: str, batch: int) -> None:
    rows.write.mode("overwrite").parquet(str(given.to / table / f"batch={batch:020d}"))


# Commands.


def _take_commands(spark: SparkSession, given: argparse.Namespace, records: DataFrame, batch: int) -> None:
    rows = records.select(
        "topic", "partition", "offset", "value", F.unix_millis("timestamp").alias("since_ms")
    ).collect()
    named = [(row, f"{row.topic}-{row.partition}-{row.offset}") for row in rows]
    commands = [
        found for row, name in named if (found := command_of(row.value, since_ms=row.since_ms, id=name)) is not None
    ]
    for one in commands:
        if one.command == ANALYSE:
            _analyse(spark, given, one)
    file = given.to / "commands" / f"site={given.site}" / f"batch={batch:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(commands), encoding="utf-8")
    part.replace(file)


def commands_in(directory: Path, site: str) -> list[Command]:
    """The commands that were given at a site."""
    files = sorted((directory / "commands" / f"site={site}").glob("*.json"))
    return [Command(*one) for file in files for one in json.loads(file.read_text(encoding="utf-8"))]


def _analyse(spark: SparkSession, given: argparse.Namespace, command: Command) -> None:
    """The batch task: reads the payload that the command names, a line a result; a reference that
    dangles is a result of its own.
    """
    target = str(given.to / "results" / f"command={command.id}")
    try:
        lines = spark.read.text(command.argument).select(
            F.col("value").alias("result"), F.lit(False).alias("is_dangling")
        )
    except Exception as error:
        is_no_file = isinstance(error, AnalysisException | IllegalArgumentException) or NO_FILE_SYSTEM in str(error)
        if not is_no_file:
            raise  # it may be over when the batch is run again
        lines = spark.createDataFrame([(command.argument, True)], "result string, is_dangling boolean")
    lines.write.mode("overwrite").parquet(target)


if __name__ == "__main__":
    submitted(parser(), run)
