"""`antipode transactions`: shows transactional ids with state and age, and finds and aborts hanging
transactions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer
from kio.schema.errors import ErrorCode

from cli.shared.failures import failures_as_messages, missing_topic, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, librdkafka_settings
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from runtime.process import OperationalFailure
from wire.client.client_errors import KafkaClientError
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_descriptions import describe_producers, describe_transaction

app = typer.Typer(
    help="Transactions of a cluster: which are open, for how long, and which hang.\n\n"
    "Example: antipode transactions list --bootstrap-server 127.0.0.1:9092",
    no_args_is_help=True,
)

FIND_COORDINATOR: Final = 10
WRITE_TXN_MARKERS: Final = 27
LIST_TRANSACTIONS: Final = 66
_TRANSACTION_KEY_TYPE: Final = 1
SOFTWARE_NAME: Final = "antipode-cli"
"""The client software name of the commands, other than that of our daemons: the commands see the
cluster as applications do.
"""
RETRY_BUDGET_MS: Final = 15_000

Result = TypeVar("Result")
TopicName = Annotated[str, typer.Option(help="The topic.")]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as its leader knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp_ms: int


@app.command("list")
def list_all(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """List every transactional id with its producer and its state.

    Example: antipode transactions list --output json
    """
    rows = _run(_listed(bootstrap_server))
    if output is OutputFormat.JSON:
        print_json(
            [{"transactional_id": name, "producer_id": producer, "state": state} for name, producer, state in rows]
        )
    else:
        print_table("", ("transactional id", "producer id", "state"), rows)


@app.command()
def describe(
    transactional_id: Annotated[str, typer.Argument(help="The producer's transactional.id.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the state, epoch, age and partitions of one transactional id.

    Example: antipode transactions describe billing
    """
    document = _run(_described(bootstrap_server, transactional_id))
    if output is OutputFormat.JSON:
        print_json(document)
        return
    title = (
        f"{transactional_id}  {document['state']}, producer {document['producer_id']} epoch {document['producer_epoch']}, "
        f"timeout {document['timeout_ms']:,} ms"
    )
    print_table(title, ("topic", "partition"), [(item["topic"], item["partition"]) for item in document["partitions"]])


@app.command("find-hanging")
def find_hanging(
    topic: TopicName,
    minutes: Annotated[
        float, typer.Option(help="Only transactions that have been open for longer than this.", min=0)
    ] = 15.0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Find transactions that are open in a partition and unknown to every coordinator.

    Example: antipode transactions find-hanging --topic orders --minutes 15
    """
    found = _run(_hanging(bootstrap_server, topic, older_than_ms=minutes * 60_000))
    if output is OutputFormat.JSON:
        print_json([item._asdict() for item in found])
        return
    columns = (
        "topic",
        "partition",
        "producer id",
        "epoch",
        "coordinator epoch",
        "first offset",
        "last record (Unix ms)",
    )
    print_table(f"{len(found)} hanging transactions", columns, found)


@app.command()
def abort(
    transactional_id: Annotated[str | None, typer.Argument(help="Abort the open transaction of this producer.")] = None,
    topic: Annotated[str | None, typer.Option(help="Instead of a transactional id: the topic of a partition.")] = None,
    partition: Annotated[int, typer.Option(help="The partition.", min=0)] = 0,
    first_offset: Annotated[
        int | None, typer.Option(help="The offset at which the transaction begins in the partition.", min=0)
    ] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Abort an open transaction by its transactional id, which also fences its producer, or a
    hanging transaction of one partition.

    Example: antipode transactions abort billing --yes

    Example: antipode transactions abort --topic orders --partition 3 --first-offset 1200 --yes
    """
    is_by_place = topic is not None and first_offset is not None
    if (transactional_id is None) is not is_by_place:
        raise usage_error("name a transactional id, or --topic, --partition and --first-offset")
    what = transactional_id if topic is None else f"{topic}-{partition} at {first_offset}"
    if not is_sure:
        typer.confirm(f"Abort the transaction of {what}?", abort=True, err=True)
    if topic is not None and first_offset is not None:
        _run(_abort_in_partition(bootstrap_server, topic, partition, first_offset))
    elif transactional_id is not None:
        _run(_abort_producer(bootstrap_server, transactional_id))
    if output is OutputFormat.JSON:
        print_json({"aborted": what})
    else:
        console.print(f"the transaction of {what} is aborted", markup=False)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    with failures_as_messages():
        try:
            return asyncio.run(work)
        except KafkaClientError as error:
            raise OperationalFailure(str(error)) from error


def _client(bootstrap_server: str) -> KafkaClient:
    options = ConnectionOptions(client_id=SOFTWARE_NAME, software_name=SOFTWARE_NAME)
    try:
        return KafkaClient(bootstrap_server, options, retry_budget_ms=RETRY_BUDGET_MS)
    except ValueError as error:
        raise usage_error(f"--bootstrap-server {bootstrap_server!r} is not usable: {error}") from error


async def _listed(bootstrap_server: str) -> list[tuple[str, int, str]]:
    async with _client(bootstrap_server) as client:
        rows = []
        for node_id in sorted((await client.metadata([])).brokers):
            connection = await client.connection(node_id)
            response = await connection.call(LIST_TRANSACTIONS, {"state_filters": (), "producer_id_filters": ()})
            _check(response.error_code, f"broker {node_id} cannot list its transactions")
            rows += [
                (str(t.transactional_id), int(t.producer_id), t.transaction_state) for t in response.transaction_states
            ]
    return sorted(rows)


async def _coordinator(client: KafkaClient, transactional_id: str) -> int:
    """The coordinator of the id. The first request in a cluster creates the internal topic, so the
    request is repeated for a while.
    """
    await client.metadata([])
    connection = await client.connection(min(client.cluster.brokers))
    values = {"key_type": _TRANSACTION_KEY_TYPE, "coordinator_keys": (transactional_id,)}
    deadline = time.monotonic() + RETRY_BUDGET_MS / 1000
    while True:
        (found,) = (await connection.call(FIND_COORDINATOR, values)).coordinators
        is_transient = found.error_code is ErrorCode.coordinator_not_available
        if not is_transient or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.2)
    _check(found.error_code, f"the coordinator of {transactional_id} is not found")
    return int(found.node_id)


async def _described(bootstrap_server: str, transactional_id: str) -> dict[str, Any]:
    async with _client(bootstrap_server) as client:
        connection = await client.connection(await _coordinator(client, transactional_id))
        found = await describe_transaction(connection, transactional_id)
    _check(found.error_code, f"transactional id {transactional_id}")
    return {
        "transactional_id": transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start_ms": None if found.start_ms < 0 else found.start_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in found.partitions],
    }


async def _open_in(client: KafkaClient, topic: str, only: int | None = None) -> list[OpenTransaction]:
    metadata = await client.metadata([topic])
    if topic not in metadata.topics or metadata.topics[topic].error_code:
        raise missing_topic(topic)
    partitions = sorted(metadata.topics[topic].partitions)
    if only is not None and only not in partitions:
        raise OperationalFailure(
            f"--partition {only}: topic {topic} has no such partition; accepted are 0 to {len(partitions) - 1}"
        )
    found = []
    for partition in partitions if only is None else [only]:
        connection = await client.connection(await client.leader(topic, partition))
        described = await describe_producers(connection, topic, partition)
        _check(described.error_code, f"producers of {topic}-{partition}")
        found += [
            OpenTransaction(
                topic=topic,
                partition=partition,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
                first_offset=producer.current_txn_start_offset,
                last_timestamp_ms=producer.last_timestamp,
            )
            for producer in described.active_producers
            if producer.current_txn_start_offset >= 0
        ]
    return found


async def _hanging(bootstrap_server: str, topic: str, *, older_than_ms: float) -> list[OpenTransaction]:
    now_ms = time.time() * 1000
    async with _client(bootstrap_server) as client:
        old = [item for item in await _open_in(client, topic) if now_ms - item.last_timestamp_ms >= older_than_ms]
    if not old:
        return []
    known = set()
    for name, producer_id, state in await _listed(bootstrap_server):
        if state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
            described = await _described(bootstrap_server, name)
            known |= {(producer_id, item["topic"], item["partition"]) for item in described["partitions"]}
    return [item for item in old if (item.producer_id, item.topic, item.partition) not in known]


async def _abort_producer(bootstrap_server: str, transactional_id: str) -> None:
    """Initialize a producer of the same id: the coordinator then aborts the open transaction and
    fences the former producer.
    """
    from confluent_kafka import KafkaException, Producer

    known = await _described(bootstrap_server, transactional_id)
    if known["state"] != "Ongoing":
        raise OperationalFailure(f"{transactional_id} has no open transaction: its state is {known['state']}")

    def take_over() -> None:
        settings = {**librdkafka_settings(bootstrap_server), "transactional.id": transactional_id}
        Producer({**settings, "transaction.timeout.ms": known["timeout_ms"]}).init_transactions(RETRY_BUDGET_MS / 1000)

    try:
        await asyncio.to_thread(take_over)
    except KafkaException as error:
        raise OperationalFailure(f"{transactional_id} cannot be taken over: {error.args[0].str()}") from error


async def _abort_in_partition(bootstrap_server: str, topic: str, partition: int, first_offset: int) -> None:
    async with _client(bootstrap_server) as client:
        found = [item for item in await _open_in(client, topic, partition) if item.first_offset == first_offset]
        if not found:
            raise OperationalFailure(
                f"no transaction that is open begins at offset {first_offset} of {topic}-{partition}"
            )
        marker = {
            "producer_id": found[0].producer_id,
            "producer_epoch": found[0].producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": max(found[0].coordinator_epoch, 0),
            "topics": [{"name": topic, "partition_indexes": (partition,)}],
        }
        connection = await client.connection(await client.leader(topic, partition))
        response = await connection.call(WRITE_TXN_MARKERS, {"markers": [marker]}, version=1)
        _check(response.markers[0].topics[0].partitions[0].error_code, f"{topic}-{partition} refuses the marker")


def _check(error: ErrorCode, what: str) -> None:
    if error is not ErrorCode.none:
        raise OperationalFailure(f"{what}: {error.name.upper()}")
