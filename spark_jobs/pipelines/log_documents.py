"""Log lines as documents: lines that match are kept under an id made of topic, partition and
offset, so that a batch which is run again makes no second document.

    spark-submit spark_jobs/pipelines/log_documents.py --bootstrap-server host:port --topic mylog
        --match ERROR --to /var/mylog --checkpoint DIRECTORY

The documents are Parquet files, a directory a batch of the query, which Spark SQL searches
(`found_in`). A batch that is run again writes its directory again.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from spark_jobs.pipelines.catalogue import add_stream_options, submitted, topic_parser, trigger_of
from spark_jobs.topic_frames import TopicSource, stream_of

EVERYTHING: Final = "."


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Keep matching log lines of a topic as documents.")
    found.add_argument("--topic", required=True, help="topic with a line in each record's value")
    found.add_argument("--match", default=EVERYTHING, help="a regular expression that lines have to contain")
    found.add_argument("--to", required=True, type=Path, help="directory of the documents")
    add_stream_options(found)
    return found


def documents_of(records: DataFrame, match: str) -> DataFrame:
    """`id`, `timestamp` and `message` of the records that match."""
    return records.select(
        F.concat_ws("-", "topic", "partition", "offset").alias("id"),
        "timestamp",
        F.col("value").cast("string").alias("message"),
    ).where(F.col("message").rlike(match))


def _keep(directory: Path, match: str, records: DataFrame, batch: int) -> None:
    documents_of(records, match).write.mode("overwrite").parquet(str(directory / f"batch={batch:020d}"))


def found_in(spark: SparkSession, directory: Path, words: str) -> DataFrame:
    """The documents whose message has the words."""
    return spark.read.parquet(str(directory)).where(F.col("message").contains(words))


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Run the query; returns when it ends."""
    source = TopicSource(bootstrap=given.bootstrap_server, topics=given.topic, is_list=True)
    query = (
        stream_of(spark, source)
        .writeStream.queryName("log-documents")
        .option("checkpointLocation", given.checkpoint)
        .foreachBatch(partial(_keep, given.to, given.match))
        .trigger(**trigger_of(given))
        .start()
    )
    query.awaitTermination()
    return f"kept the lines of {given.topic} that match {given.match!r} in {given.to}"


if __name__ == "__main__":
    submitted(parser(), run)
