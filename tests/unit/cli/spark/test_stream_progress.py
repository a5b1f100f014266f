"""Lines about the batches of streaming queries. Promised: each one with records is printed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from cli.spark import stream_progress
from cli.spark.stream_progress import reported_batches
from tests.support.eventually import eventually_sync


@dataclass
class Progress:
    batchId: int
    numInputRows: int


@dataclass
class Query:
    name: str
    runId: str
    lastProgress: Progress | None = None


@dataclass
class Streams:
    active: list[Query] = field(default_factory=list)
    looks: int = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "active":
            self.looks += 1
        return super().__getattribute__(name)


@dataclass
class Spark:
    streams: Streams


def test_each_batch_with_records_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr(stream_progress, "report_progress", printed.append)
    streams = Streams()
    words, idle = Query("word-count", "1", Progress(0, 7)), Query("idle", "2", Progress(3, 0))
    streams.active = [words, idle, Query("new", "3")]

    def looked_twice_more() -> None:
        before = streams.looks
        eventually_sync(lambda: streams.looks >= before + 2)

    with reported_batches(cast("SparkSession", Spark(streams)), interval_s=0.001):
        looked_twice_more()
        words.lastProgress = Progress(1, 1_500)
        looked_twice_more()
    assert printed == ["word-count: batch 0 has 7 records", "word-count: batch 1 has 1,500 records"]
