"""The data source's writers. A batch query writes at least once, as the Kafka connector does; a
streaming query writes exactly once.

Each task of a streaming query has a transactional id of its own, by query and partition, and leaves
its transaction open. The driver notes which transactions are the batch and commits them. A batch
that runs again after any failure is committed as it was decided. If it was not decided, it is
written anew with the rows that its tasks have this time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_decisions import (
    Decision,
    TaskTransaction,
    check_time,
    is_decided,
    is_void,
    transactional_id,
)
from spark_jobs.connector.core.sink_leftovers import Leftovers, Sought, is_moved, sought_of
from spark_jobs.connector.core.sink_rows import COLUMNS, Rows, check_columns
from spark_jobs.connector.sink_decider import SinkDecider, newest_identity
from spark_jobs.connector.sink_producer import SinkProducer
from spark_jobs.connector.transaction_coordinator import Fenced, TransactionCoordinator
from spark_jobs.logs.cluster_client import open_client
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.protocol.ids import PartitionKey
from wire.rules.producer_ids import site_number_of

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
Result = TypeVar("Result")


class BatchSink(DataSourceArrowWriter):
    """Writes a batch query: an idempotent producer for each task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _checked_columns(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows."""
        rows = _rows(iterator, self._columns)

        _with_client(self._options, lambda client: SinkProducer(client, self._options, task=_task()).write(rows))
        return WriterCommitMessage()


class Prepared(WriterCommitMessage):
    """A task's report to the driver. `transaction` None: it had no rows to write, or (`is_decided`)
    the batch was decided before. `former` is a transaction of another site that has rows of it.
    """

    def __init__(self, query: str, identity: ProducerIdentity, earlier: Decision | None, *, is_decided: bool) -> None:
        self.query = query
        self.identity = identity
        self.earlier = earlier
        self.is_decided = is_decided
        self.transaction: TaskTransaction | None = None
        self.former: TaskTransaction | None = None
        self.ends: dict[PartitionKey, int] = {}
        self.begun_ms = time.time_ns() // 1_000_000


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming query: a transaction for each task of each batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _checked_columns(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task's rows of one batch."""
        rows, batch = _rows(iterator, self._columns), int(_property(BATCH_ID))
        query = self._options.query or _property(QUERY_ID)
        return _with_client(self._options, lambda client: self._prepared(client, rows, query, batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Decide the batch and make it visible. Fenced when another driver runs the query."""
        prepared = [message for message in messages if isinstance(message, Prepared)]
        written = [message for message in prepared if message.transaction is not None]
        ends = {place: end for message in prepared for place, end in message.ends.items()}
        # There is nothing to decide, or an earlier attempt of the batch has decided.
        if not ends or any(message.is_decided for message in prepared):
            return
        now_ms = time.time_ns() // 1_000_000
        begun_ms = {number: message.begun_ms for number, message in enumerate(written)}
        # An old transaction may have timed out at the brokers; then only a part of the batch could
        # be committed.
        check_time(begun_ms, now_ms=now_ms, timeout_ms=self._options.transaction_timeout_ms)
        identity = newest_identity([message.identity for message in prepared])
        decision = _decision(prepared, batchId, producer_id=identity.producer_id, now_ms=now_ms)

        async def decide(client: KafkaClient) -> None:
            query = prepared[0].query
            decider = SinkDecider(client, self._options, query)
            # The decision comes first: from here on every attempt completes this batch.
            await decider.decide(decision, identity, ends)
            # A newer driver has aborted all of them, so nothing of the batch is visible.
            if is_void(await decider.carry_out(decision), query=query, batch=batchId):
                raise Fenced(f"another driver runs query {query}")
            await decider.finish(decision, *min(ends.items()))

        _with_client(self._options, decide)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Do nothing: the next attempt aborts what is open, or carries out what was decided."""

    async def _prepared(self, client: KafkaClient, rows: Iterator[Rows], query: str, batch: int) -> Prepared:
        decider = SinkDecider(client, self._options, query)
        # The fence comes before the read, so that no older driver can decide after the read.
        identity = await decider.fence()
        earlier = await decider.decided()
        is_from_elsewhere = is_moved(earlier, identity.producer_id)
        if is_decided(earlier, query=query, batch=batch):
            assert earlier is not None
            if not earlier.is_carried_out and not is_from_elsewhere:
                await _carry_out_again(decider, earlier)
            if earlier.is_carried_out or not is_from_elsewhere:
                return Prepared(query, identity, earlier, is_decided=True)
        message = Prepared(query, identity, earlier, is_decided=False)
        producer, leftovers = SinkProducer(client, self._options, task=_task()), None
        if self._options.recognises_batches and (earlier is None or is_from_elsewhere):
            sought = await self._sought(client, identity, earlier, query, batch)
            leftovers = None if sought is None else Leftovers(sought, query=query, batch=batch, task=_task())
        own = await producer.prepare(rows, transactional_id(query, _task()), leftovers)
        message.ends = producer.ends
        message.transaction = None if own is None else TaskTransaction(_task(), *own)
        message.former = None if leftovers is None else leftovers.transaction
        return message

    async def _sought(
        self, client: KafkaClient, identity: ProducerIdentity, earlier: Decision | None, query: str, batch: int
    ) -> Sought | None:
        """What another site may have of the task's rows."""
        found = sought_of(earlier, query=query, batch=batch, task=_task(), producer_id=identity.producer_id)
        if found is None or earlier is not None:
            return found
        # without a list the coordinator may know of another site, until it gives the task an id
        known = await TransactionCoordinator(client).producer_id(transactional_id(query, _task()))
        is_elsewhere = known >= 0 and site_number_of(known) != found.site_number
        return replace(found, is_known_elsewhere=is_elsewhere)


async def _carry_out_again(decider: SinkDecider, earlier: Decision) -> None:
    """Carry out what an earlier attempt decided. All tasks find the same decision; only task 0
    carries it out, because all tasks would commit the same transactions.
    """
    if _task() == 0 and not await decider.carry_out_again(earlier):
        raise Fenced(
            f"all transactions of batch {earlier.batch} were aborted: start the query again, it writes the batch again"
        )


def _decision(prepared: Sequence[Prepared], batch: int, *, producer_id: int, now_ms: int) -> Decision:
    """The decision about what the tasks have written."""
    transactions = tuple(one.transaction for one in prepared if one.transaction is not None)
    former = tuple(one.former for one in prepared if one.transaction is None and one.former is not None)
    earlier = prepared[0].earlier
    others = former if earlier is None else (*former, *earlier.others_than((*transactions, *former)))
    return Decision(batch=batch, transactions=transactions, others=others, producer_id=producer_id, decided_ms=now_ms)


def _checked_columns(options: WriteOptions, schema: StructType) -> dict[str, int]:
    """Positions of the columns that are written."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    check_columns(types, has_topic_option=bool(options.topic))
    return {name: position for position, name in enumerate(types) if name in COLUMNS}


def _rows(batches: Iterable[pa.RecordBatch], columns: dict[str, int]) -> Iterator[Rows]:
    return (Rows.of(batch, columns) for batch in batches if batch.num_rows)


def _with_client(options: WriteOptions, work: Callable[[KafkaClient], Coroutine[Any, Any, Result]]) -> Result:
    async def run() -> Result:
        client = await open_client(options.cluster)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def _task() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _property(name: str) -> str:
    """A property that Spark gives each task of a streaming query."""
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if value is None:
        raise RuntimeError(f"Spark gives this task no property {name}: is it one of a streaming query?")
    return str(value)
