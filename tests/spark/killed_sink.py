"""The data source "antipode" with a sink that kills its own process between write and commit.

    .format(KilledSource.name()).option("killed.notes", DIRECTORY).option("killed.times", "100")

Each kill is a file in the directory, made just before it, so that processes which start later know
how many there were. The points of `POINTS` take turns. A point that a commit does not reach, since
its batch was decided by an earlier attempt, waits for the next batch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_jobs.connector import sink
from spark_jobs.connector.core.sink_decisions import Decision, Ended
from spark_jobs.connector.sink_decider import SinkDecider
from spark_jobs.connector.source import AntipodeSource
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import PartitionKey

WRITTEN, DECIDED, COMMITTED, NOTED = "rows are written", "decided", "transactions are committed", "noted"
IN_TASK: Final = "rows of a task are written"
POINTS: Final = (WRITTEN, DECIDED, COMMITTED, NOTED, IN_TASK)


@dataclass(frozen=True, slots=True)
class Killer:
    """Kills this process at the points whose turn it is."""

    notes: Path
    times: int

    def at(self, point: str) -> None:
        """Kill this process if it is the turn of the point."""
        number = len(list(self.notes.iterdir()))
        if number < self.times and POINTS[number % len(POINTS)] == point:
            (self.notes / f"{number:04d} {point}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


class KilledDecider(SinkDecider):
    """The driver's part of a commit, killed after each of its steps."""

    killer: ClassVar[Killer]

    async def decide(self, decision: Decision, identity: ProducerIdentity, places: Mapping[PartitionKey, int]) -> None:
        await super().decide(decision, identity, places)
        self.killer.at(DECIDED)

    async def carry_out(self, decision: Decision) -> list[Ended]:
        found = await super().carry_out(decision)
        self.killer.at(COMMITTED)
        return found


class KilledSink(DataSourceStreamArrowWriter):
    """The sink of streaming queries, killed in between."""

    def __init__(self, whole: sink.StreamSink, killer: Killer) -> None:
        self._whole = whole
        self._killer = killer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = self._whole.write(iterator)
        if sink._task() == 0:  # two tasks at once would make two notes of one kill
            self._killer.at(IN_TASK)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._killer.at(WRITTEN)
        KilledDecider.killer = self._killer
        # The process of the commit has no other sink.
        setattr(sink, SinkDecider.__name__, KilledDecider)
        self._whole.commit(messages, batchId)
        self._killer.at(NOTED)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._whole.abort(messages, batchId)


class KilledSource(AntipodeSource):
    """The data source with such a sink."""

    @classmethod
    def name(cls) -> str:
        return "antipode-killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        own = {name: self.options.pop(name) for name in ("killed.notes", "killed.times")}
        whole = super().streamWriter(schema, overwrite)
        assert isinstance(whole, sink.StreamSink)
        killed: Any = KilledSink(whole, Killer(Path(own["killed.notes"]), int(own["killed.times"])))
        return killed  # type: ignore[no-any-return]
