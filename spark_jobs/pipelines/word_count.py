"""Word count, topic to topic: lines in, the count of each word that changed out, as JSON.

    spark-submit spark_jobs/pipelines/word_count.py --bootstrap-server host:port --input-topic lines
        --output-topic words --checkpoint DIRECTORY

A word of the output may be written twice after a failure, with the same count; the last count of a
word is valid. A line is split at single spaces, and each piece between two spaces counts, also an
empty one.
"""

from __future__ import annotations

import argparse
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from spark_jobs.connector.topic_frames import TopicSource, stream_of, write_records
from spark_jobs.pipelines.catalogue import (
    add_loss_option,
    add_stream_options,
    loss_options,
    submitted,
    topic_parser,
    trigger_of,
)
from spark_jobs.streaming import run_queries


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = topic_parser("Count the words of a topic's lines into another topic.")
    found.add_argument("--input-topic", required=True, help="topic with a line in each record's value")
    found.add_argument("--output-topic", required=True, help="topic for the counts, by word as key")
    add_stream_options(found)
    add_loss_option(found)
    found.topics = ("input_topic", "output_topic")
    return found


def words_counted(lines: DataFrame) -> DataFrame:
    """`word` and `count`, from the records of the input."""
    split = F.explode(F.split(F.col("value").cast("string"), " ")).alias("word")
    return lines.select(split).groupBy("word").count()


def _write(bootstrap: str, topic: str, counted: DataFrame, _batch: int) -> None:
    rows = counted.select(
        F.col("word").cast("binary").alias("key"), F.to_json(F.struct("word", "count")).cast("binary").alias("value")
    )
    write_records(rows, bootstrap=bootstrap, topic=topic)


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """Run the query; returns when it ends."""
    source = TopicSource(
        bootstrap=given.bootstrap_server, topics=given.input_topic, is_list=True, options=loss_options(given)
    )
    counted = words_counted(stream_of(spark, source))
    writer = (
        counted.writeStream.queryName("word-count")
        .foreachBatch(partial(_write, given.bootstrap_server, given.output_topic))
        .outputMode("update")
        .option("checkpointLocation", given.checkpoint)
        .trigger(**trigger_of(given))
    )
    run_queries(writer.start)
    return f"counted the words of {given.input_topic} into {given.output_topic}"


if __name__ == "__main__":
    submitted(parser(), run)
