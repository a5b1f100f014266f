"""INT-34 and SC-11 of the requirements: an ingest that is killed between write and commit again and
again loses no record, and writes none twice. What is killed (SIGKILL) is the process that writes or
commits, and nothing else; the query then starts again from its checkpoint.

`make proof-ingest` kills a hundred times (`ANTIPODE_KILLS`).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.streaming import LATE_WORKER, run_queries
from tests.spark.killed_sink import POINTS, KilledSource
from tests.spark.streams import Streams
from tests.support.lone_brokers.lone_broker_process import LoneBroker

KILLS = int(os.environ.get("ANTIPODE_KILLS", "5"))
SECONDS_OF_A_KILL_MAX = 60
RECORDS_OF_A_BATCH = 30

pytestmark = [pytest.mark.timeout(240 + SECONDS_OF_A_KILL_MAX * KILLS)]


def test_no_record_is_missing_or_twice_after_kills_between_write_and_commit(
    spark: SparkSession, brokers: tuple[LoneBroker, LoneBroker], tmp_path: Path
) -> None:
    streams = Streams(spark, brokers[0].bootstrap)
    source, target = streams.create(partitions=2), streams.create(partitions=2)
    total = RECORDS_OF_A_BATCH * (KILLS + 2)
    streams.fill(source, 0, total, partitions=2)
    notes = tmp_path / "kills"
    notes.mkdir()
    spark.dataSource.register(KilledSource)
    reader = spark.readStream.format("antipode").options(
        **streams.servers, subscribe=source, startingOffsets="earliest"
    )
    rows = reader.option("maxOffsetsPerTrigger", str(RECORDS_OF_A_BATCH)).load().select("key", "value")
    options = {"topic": target, "killed.notes": str(notes), "killed.times": str(KILLS)}
    writer = rows.writeStream.format(KilledSource.name()).options(**streams.servers, **options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    began, starts, is_over = time.monotonic(), 0, False
    while not is_over:
        killed_before = len(list(notes.iterdir()))
        starts += 1
        try:
            run_queries(writer.start)
            is_over = True
        except PySparkException as error:
            # A query that fails without a kill is a fault, unless the machine was too busy to start
            # a Python worker within Spark's 10 s.
            if len(list(notes.iterdir())) == killed_before and LATE_WORKER not in str(error):
                raise
    kills = Counter(path.name.partition(" ")[2] for path in notes.iterdir())
    print(f"{kills.total()} kills, {starts} starts, {total} records, {time.monotonic() - began:.0f} s: {dict(kills)}")
    assert kills.total() == KILLS
    assert set(kills) == set(POINTS[:KILLS])
    assert Counter(streams.values(target)) == Counter(range(total))
