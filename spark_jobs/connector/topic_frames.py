"""Topics as DataFrames and DataFrames as topics, for the jobs of this package: one place chooses
the data source and names the site.

The columns are those of Spark's Kafka connector: key, value, topic, partition, offset, timestamp.
The jobs also run with that connector: change the name of the format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "antipode"
EARLIEST: Final = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """Topics to read: `bootstrap` is a host:port list; `topics` a regular expression on whole
    names, or with `is_list` names joined by commas. `options` are the data source's own.
    """

    bootstrap: str
    topics: str
    is_list: bool = False
    options: dict[str, str] = field(default_factory=dict)

    def as_options(self) -> dict[str, str]:
        """The options of the data source."""
        which = "subscribe" if self.is_list else "subscribePattern"
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            which: self.topics,
            "startingOffsets": EARLIEST,
            **self.options,
        }


def stream_of(spark: SparkSession, source: TopicSource) -> DataFrame:
    """A streaming query's records, from the beginning of the topics unless a checkpoint says
    otherwise.
    """
    return spark.readStream.format(FORMAT).options(**source.as_options()).load()


def records_of(spark: SparkSession, source: TopicSource) -> DataFrame:
    """The records that the topics hold now."""
    return spark.read.format(FORMAT).options(**source.as_options()).load()


def write_records(frame: DataFrame, *, bootstrap: str, topic: str) -> None:
    """Append rows with `value` and perhaps `key`, `partition`, `headers` to a topic; at least once,
    when a task is run again.
    """
    frame.write.mode("append").format(FORMAT).option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
