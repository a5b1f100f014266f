"""One SQL view over records in files and the newer records that only the topic has.

    spark-submit spark_jobs/pipelines/hot_and_cold.py --bootstrap-server host:port --topic orders
        --to /var/orders --sql "select count(*) from records"

The cold part are the files of `topic_to_files.py`; the hot part are the offsets behind them, read
from the topic when the query runs. No record is in both, and none is in neither.
"""

from __future__ import annotations

import argparse
import json

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.pipelines import topic_to_files
from spark_jobs.pipelines.catalogue import submitted

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_to_files.parser()
    found.description = "Ask files and topic as one view, named records."
    found.add_argument("--sql", default="select count(*) as records from records", help="what to ask")
    found.add_argument("--keep", action="store_true", help="first write what is hot to files, as topic-to-files does")
    return found


def view_of(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    """Files and topic together."""
    topic, directory = given.topic, given.to
    done, last = topic_to_files.ranges_kept(directory, topic)
    with topic_to_files.TopicLogs(given.bootstrap_server, topic) as logs:
        ranges, _ = logs.planned(last, is_skipping_lost=given.skip_lost)
    hot = topic_to_files.records_in(spark, given.bootstrap_server, topic, ranges).select(*COLUMNS)
    if not done:
        return hot
    runs = [str(directory / f"run={one.stem}") for one in done]
    return spark.read.parquet(*runs).select(*COLUMNS).unionByName(hot)


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Ask; the answer as JSON, a line a row."""
    if given.keep:
        topic_to_files.run(spark, given)
    view_of(spark, given).createOrReplaceTempView("records")
    return "\n".join(json.dumps(row.asDict(), default=str) for row in spark.sql(given.sql).collect())


if __name__ == "__main__":
    submitted(parser(), run)
