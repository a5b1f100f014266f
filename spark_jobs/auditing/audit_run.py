"""The audit job: counts the records of each site by topic, partition and window of event time, with
the delay until they were read. It also stores the counts that programs publish about their own
work.

One streaming query reads each site, so that a lost site does not stop the others. The counts of a
batch are one file with the batch's number as its name. A batch that runs again after a crash
replaces its file, so no record counts twice. `report.py` judges the counts; it needs no Spark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from runtime.process import OperationalFailure
from spark_jobs.auditing.core.counts import Count, PublishedCount, published_count
from spark_jobs.auditing.count_store import AuditStore
from spark_jobs.connector.topic_frames import TopicSource, stream_of
from spark_jobs.logs.survey import topic_names
from spark_jobs.session import Progress
from spark_jobs.streaming import run_queries

MINUTE_MS: Final = 60_000
RETRY_AFTER_S: Final = 10.0
"""Time (s) after which the failed query of a site is started again."""
POLL_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """A request to count records. `sites` has host:port lists by name; `topics` is a regular
    expression on whole names; `counts_topic` is the topic to which programs publish, empty for
    none. `options` are the data source's own, by site.
    """

    sites: dict[str, str]
    state: Path
    topics: str
    window_ms: int = MINUTE_MS
    counts_topic: str = ""
    trigger_ms: int = 10_000
    options: dict[str, dict[str, str]] = field(default_factory=dict)

    def keep_settings(self) -> None:
        """Store the settings that must not change between runs. Raises OperationalFailure when the
        state was created with other values.
        """
        AuditStore(self.state).settings(window_ms=self.window_ms, counts_topic=self.counts_topic)

    def check(self, sites: Mapping[str, str]) -> None:
        """Raise OperationalFailure for an expression that is none, for a topic of counts that none
        of these sites has, or if there is one to ask for and no site answers.
        """
        try:
            re.compile(self.topics)
        except re.error as error:
            raise OperationalFailure(f"--topics {self.topics!r}: {error}; accepted: a regular expression") from error
        asked, failures = [], []
        for site, servers in sites.items() if self.counts_topic else ():
            try:
                if self.counts_topic in topic_names(servers):
                    return
                asked.append(site)
            except OperationalFailure as failure:
                failures.append(failure)
        if asked:
            raise OperationalFailure(
                f"--counts-topic {self.counts_topic!r}: not at {'site' if len(asked) == 1 else 'sites'} "
                f"{', '.join(asked)}, or this user may not describe it; accepted: a topic that exists there, as "
                "`antipode topics list` shows them"
            )
        if failures:
            raise failures[0]


@dataclass(slots=True)
class Audit:
    """The queries of one audit. `run_until_end` or `run` once."""

    spark: SparkSession
    request: AuditRequest
    progress: Progress = lambda _: None

    def __post_init__(self) -> None:
        self.request.keep_settings()

    def run_until_end(self) -> None:
        """Count the records that exist now. Raises OperationalFailure, which names the sites that
        failed; the others are counted.
        """
        problems = []
        for site in self.request.sites:
            try:
                run_queries(partial(self._start, site, {"availableNow": True}))
            except StreamingQueryException as error:
                problems.append(f"site {site}: {_cause(error)}")
        if problems:
            raise OperationalFailure("; ".join(problems))

    def run(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Count until `is_wanted` says no; a site's query that fails is started again."""
        trigger = {"processingTime": f"{self.request.trigger_ms} milliseconds"}
        queries: dict[str, Any] = {}
        due_s = dict.fromkeys(self.request.sites, 0.0)
        try:
            while is_wanted():
                for site in self.request.sites:
                    query = queries.get(site)
                    if query is not None and not query.isActive:
                        self.progress(f"the query of site {site} has ended: {_cause(query.exception())}")
                        del queries[site]
                        due_s[site] = time.monotonic() + RETRY_AFTER_S
                    elif query is None and time.monotonic() >= due_s[site]:
                        queries[site] = self._start(site, trigger)
                self._await_one(queries)
        finally:
            for query in queries.values():
                query.stop()

    def _await_one(self, queries: dict[str, Any]) -> None:
        if not queries:
            time.sleep(POLL_S)
            return
        try:
            next(iter(queries.values())).awaitTermination(POLL_S)
        except StreamingQueryException:
            return  # `run` notices that the query is not active.

    def _start(self, site: str, trigger: dict[str, Any]) -> Any:
        request = self.request
        pattern = request.topics
        if request.counts_topic:
            pattern = f"{pattern}|{re.escape(request.counts_topic)}"
        # The counts show what is lost: retention, a failover or a deleted topic ends no audit.
        options = {"failOnDataLoss": "false", **request.options.get(site, {})}
        source = TopicSource(bootstrap=request.sites[site], topics=pattern, options=options)
        store = AuditStore(request.state)
        keep = partial(_keep_batch, store, site, request.window_ms, request.counts_topic)
        return (
            stream_of(self.spark, source)
            .writeStream.queryName(f"audit of {site}")
            .option("checkpointLocation", store.checkpoint(site))
            .foreachBatch(keep)
            .trigger(**trigger)
            .start()
        )


def _keep_batch(store: AuditStore, site: str, window_ms: int, counts_topic: str, frame: DataFrame, batch: int) -> None:
    frame = frame.persist()
    try:
        published: list[PublishedCount] = []
        if counts_topic:
            values = frame.where(F.col("topic") == counts_topic).select("value").collect()
            published = [found for row in values if (found := published_count(row.value)) is not None]
        counted = counts_of(frame.where(F.col("topic") != counts_topic), window_ms, round(time.time() * 1000))
        store.keep(site, batch, [Count(**row.asDict()) for row in counted.collect()], published)
    finally:
        frame.unpersist()


def counts_of(records: DataFrame, window_ms: int, now_ms: int) -> DataFrame:
    """Rows of `Count`. Records without a timestamp (before 1970) count in the window of 1970."""
    event_ms = F.greatest(F.unix_millis("timestamp"), F.lit(0))
    delay_ms = F.greatest(F.lit(now_ms) - event_ms, F.lit(0))
    size = F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
    return (
        records.select(
            "topic",
            "partition",
            (F.floor(event_ms / F.lit(window_ms)) * F.lit(window_ms)).cast("bigint").alias("window_start_ms"),
            F.length(F.bin(delay_ms)).cast("int").alias("delay_bucket"),
            size.alias("size"),
            delay_ms.alias("delay_ms"),
        )
        .groupBy("topic", "partition", "window_start_ms", "delay_bucket")
        .agg(
            F.count("*").alias("records"),
            F.sum("size").cast("bigint").alias("bytes"),
            F.sum("delay_ms").cast("bigint").alias("delay_sum_ms"),
            F.max("delay_ms").cast("bigint").alias("delay_max_ms"),
        )
    )


def _cause(error: object) -> str:
    """The last Python exception in Spark's error text, otherwise the first line of the text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failure|Unreachable): ", line)]
    return (raised[-1:] or lines[:1] or ["it was stopped"])[0]
