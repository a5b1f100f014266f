"""Log lines as documents: lines that match are kept under an id made of topic, partition and
offset, so that a batch which is run again makes no second document.

    spark-submit spark_jobs/pipelines/log_documents.py --bootstrap-server host:port --topic mylog
        --match ERROR --to /var/mylog --checkpoint DIRECTORY

With `--store` they go to an engine with the bulk interface of Elasticsearch and OpenSearch, where
`--index` names the index. With `--to` they are Parquet files, a directory a batch of the query,
which Spark SQL searches (`found_in`). A batch that is run again writes the same documents again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from runtime.process import OperationalFailure
from spark_jobs.connector.topic_frames import TopicSource, stream_of
from spark_jobs.pipelines.catalogue import (
    add_loss_option,
    add_stream_options,
    loss_options,
    submitted,
    topic_parser,
    trigger_of,
)
from spark_jobs.pipelines.core.bulk_requests import Rejected
from spark_jobs.pipelines.document_store import nodes_of, write_rows
from spark_jobs.streaming import run_queries

EVERYTHING: Final = ""
"""As an expression it is also in an empty line."""


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Keep matching log lines of a topic as documents.")
    found.add_argument("--topic", required=True, help="topic with a line in each record's value")
    found.add_argument(
        "--match",
        default=EVERYTHING,
        help="a regular expression that lines have to contain; by default all lines are kept",
    )
    where = found.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", type=Path, help="directory of the documents, as Parquet")
    where.add_argument(
        "--store",
        help=(
            "nodes of a document store, http://host:9200[,http://host:9200...]; a password is best given as ${env:NAME}"
        ),
    )
    found.add_argument("--index", default="logs", help="index of the document store")
    found.add_argument("--skip-rejected", action="store_true", help="print documents that the store refuses, and go on")
    add_stream_options(found)
    add_loss_option(found)
    found.topics = ("topic",)
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


def _send(given: argparse.Namespace, records: DataFrame, batch: int) -> None:
    """One batch to the store. Raises OperationalFailure with the first document that it refuses,
    unless they are to be skipped.
    """
    send = partial(_sent, nodes_of(given.store), given.index)
    rejected = documents_of(records, given.match).rdd.mapPartitions(send).collect()
    if rejected and not given.skip_rejected:
        first = rejected[0]
        raise OperationalFailure(
            f"the document store refuses {len(rejected)} documents of batch {batch}, the first one is "
            f"{first.id}: {first.reason}; --skip-rejected continues without them"
        )
    for one in rejected:
        print(f"rejected {one.id}: {one.reason}", file=sys.stderr)


def _sent(urls: Sequence[str], index: str, rows: Iterable[Any]) -> Iterator[Rejected]:
    return iter(write_rows(urls, index, rows))


def found_in(spark: SparkSession, directory: Path, words: str) -> DataFrame:
    """The documents whose message has the words."""
    return spark.read.parquet(str(directory)).where(F.col("message").contains(words))


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Run the query; returns when it ends."""
    source = TopicSource(
        bootstrap=given.bootstrap_server, topics=given.topic, is_list=True, options=loss_options(given)
    )
    writer = (
        stream_of(spark, source)
        .writeStream.queryName("log-documents")
        .option("checkpointLocation", given.checkpoint)
        .foreachBatch(partial(_keep, given.to, given.match) if given.to else partial(_send, given))
        .trigger(**trigger_of(given))
    )
    run_queries(writer.start)
    lines = f"the lines of {given.topic}" + (f" that match {given.match!r}" if given.match else "")
    return f"kept {lines} in {given.to or given.index}"


if __name__ == "__main__":
    submitted(parser(), run)
