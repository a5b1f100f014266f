"""The transaction APIs' handlers in every version they advertise: requests in, responses that can
be encoded out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from broker.handlers.registry import load_handlers
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.request_context import RequestContext
from broker.metrics import BrokerMetrics
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.marker_groups import TransactionEnd
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, PartitionState, TopicInfo
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.ids import TopicPartition

HANDLERS = {module.__name__.rpartition(".")[2]: module for module in load_handlers().values()}


def versions(name: str) -> list[int]:
    return list(range(HANDLERS[name].MIN_VERSION, HANDLERS[name].MAX_VERSION + 1))


class Ids:
    async def next_id(self) -> int:
        return 7


class SwiftMarkers:
    """Writes every marker at once, for the coordinator and for the WriteTxnMarkers handler."""

    def __init__(self) -> None:
        self.ends: list[TransactionEnd] = []

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        await asyncio.sleep(0)

    async def write(
        self, end: TransactionEnd, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.ends.append(end)
        return dict.fromkeys(partitions, ErrorCode.none)


@pytest.fixture
async def doors(clock: ManualClock) -> AsyncIterator[SimpleNamespace]:
    log = MemoryLog()
    log.epochs = {0: 1}
    partitions = [PartitionState(partition=0, leader=1)]
    batch = ControlBatch(
        is_full=True,
        brokers=[BrokerInfo(node_id=1, endpoints=[Endpoint(listener="CLIENT", host="host", port=1)])],
        topics=[
            TopicInfo(name=TRANSACTIONS_TOPIC, topic_id=b"x" * 16, partitions=partitions),
            TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=partitions),
            TopicInfo(name="t", topic_id=b"t" * 16, partitions=partitions),
        ],
    )
    image = apply_batch(ClusterImage(site="a", node_id=1), batch)
    routing, markers = TransactionRouting(lambda: image), SwiftMarkers()
    coordinator = TransactionCoordinator(TransactionLimits(), log, routing, clock, producer_ids=Ids(), markers=markers)
    await coordinator.on_image(image, image)
    await eventually(lambda: not coordinator.is_loading)
    asked_for: list[str] = []
    yield SimpleNamespace(
        authorizer=NO_AUTHORIZER,
        cluster=Cluster(image),
        clock=clock,
        configs=SimpleNamespace(current=SimpleNamespace(offsets_partition_count=50)),
        metrics=BrokerMetrics(),
        transactions=coordinator,
        transaction_routing=routing,
        transaction_markers=markers,
        groups=SimpleNamespace(partition_of=lambda group_id: 3),
        topic_creator=SimpleNamespace(request_missing=lambda topic, image: asked_for.append(topic)),
        asked_for=asked_for,
    )
    await coordinator.stop()


async def ask(doors: Any, name: str, version: int, **values: Any) -> Any:
    """The handler's response after a trip through its bytes."""
    module = HANDLERS[name]
    context = RequestContext(
        api_key=module.API_KEY,
        api_version=version,
        correlation_id=1,
        client_id="client",
        listener="CLIENT",
        client_address="127.0.0.1",
    )
    request = build_entity(schemas.request_type(module.API_KEY, version), values)
    response = await module.handle(request, context, doors)
    encoded = response if isinstance(response, bytes) else schemas.encode(response)
    if name == "describe_transactions":
        return response  # kio does not read the start time of a transaction that is not open
    return schemas.decode(schemas.response_type(module.API_KEY, version), encoded)


async def init(doors: Any, version: int = 5, **values: Any) -> Any:
    timeout = i32Timedelta.parse(timedelta(seconds=10))
    return await ask(doors, "init_producer_id", version, transactional_id="tx", transaction_timeout=timeout, **values)


async def add(doors: Any, version: int, *, epoch: int = 0, topic: str = "t", **values: Any) -> ErrorCode:
    topics = [{"name": topic, "partitions": (0,)}]
    given: dict[str, Any] = {
        "v3_and_below_transactional_id": "tx",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": topics,
    }
    if version >= 4:
        transaction = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": epoch, "topics": topics, **values}
        given = {"transactions": [transaction]}
    response = await ask(doors, "add_partitions_to_txn", version, **given)
    results = (
        response.results_by_transaction[0].topic_results if version >= 4 else response.results_by_topic_v3_and_below
    )
    code: ErrorCode = results[0].results_by_partition[0].partition_error_code
    return code


@pytest.mark.parametrize("version", versions("init_producer_id"))
async def test_a_transactional_producer_gets_an_id_and_its_next_epoch(doors: Any, version: int) -> None:
    first = await init(doors, version)
    assert (first.error_code, first.producer_id, first.producer_epoch) == (ErrorCode.none, 7, 0)
    assert (await init(doors, version)).producer_epoch == 1
    if version >= 3:
        stale = await init(doors, version, producer_id=7, producer_epoch=0)
        wanted = ErrorCode.producer_fenced if version >= 4 else ErrorCode.invalid_producer_epoch
        assert stale.error_code is wanted


@pytest.mark.parametrize("named", [{"producer_id": 7}, {"producer_epoch": 0}])
@pytest.mark.parametrize("transactional_id", ["tx", None])
async def test_an_id_without_an_epoch_is_refused(
    doors: Any, transactional_id: str | None, named: dict[str, int]
) -> None:
    timeout = i32Timedelta.parse(timedelta(seconds=10))
    given = {"producer_id": -1, "producer_epoch": -1, **named}
    refused = await ask(
        doors, "init_producer_id", 5, transactional_id=transactional_id, transaction_timeout=timeout, **given
    )
    assert refused.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions("add_partitions_to_txn"))
async def test_partitions_are_added_and_zombies_refused(doors: Any, version: int) -> None:
    await init(doors)
    if version >= 4:
        assert await add(doors, version, verify_only=True) is ErrorCode.transaction_abortable
    assert await add(doors, version) is ErrorCode.none
    assert await add(doors, version, topic="nowhere") is ErrorCode.unknown_topic_or_partition
    if version < 4:
        assert await add(doors, version, topic="__consumer_offsets") is ErrorCode.topic_authorization_failed
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert await add(doors, version, epoch=5) is fenced


@pytest.mark.parametrize("version", versions("add_offsets_to_txn"))
async def test_a_groups_partition_takes_part(doors: Any, version: int) -> None:
    await init(doors)
    given = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0}
    assert (await ask(doors, "add_offsets_to_txn", version, group_id="g", **given)).error_code is ErrorCode.none
    assert doors.transactions.describe("tx").partitions == {TopicPartition("__consumer_offsets", 3)}
    refused = await ask(doors, "add_offsets_to_txn", version, group_id="", **given)
    assert refused.error_code is ErrorCode.invalid_group_id
    # the group may be one that no client has looked up yet
    assert doors.asked_for == ["__consumer_offsets"]


async def test_no_group_takes_part_whose_coordinator_cannot_be_found_yet(doors: Any) -> None:
    """A producer of librdkafka repeats this request until its timeout, but may wait for ever for
    the group's coordinator, which it looks for next.
    """
    await init(doors)
    away = [PartitionState(partition=0, leader=-1)]
    changed = ControlBatch(topics=[TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=away)])
    doors.cluster.image = apply_batch(doors.cluster.image, changed)
    given = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, "group_id": "g"}
    refused = await ask(doors, "add_offsets_to_txn", 3, **given)
    assert refused.error_code is ErrorCode.coordinator_load_in_progress
    assert not doors.transactions.describe("tx").partitions


@pytest.mark.parametrize("version", versions("end_txn"))
async def test_from_version_5_on_an_end_brings_the_next_epoch(doors: Any, version: int) -> None:
    await init(doors)
    await add(doors, 3)
    given = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, "committed": True}
    ended = await ask(doors, "end_txn", version, **given)
    assert ended.error_code is ErrorCode.none
    if version >= 5:
        assert (ended.producer_id, ended.producer_epoch) == (7, 1)
    await eventually(lambda: doors.transactions.describe("tx").state is TransactionState.COMPLETE_COMMIT)
    other = await ask(doors, "end_txn", version, **{**given, "producer_epoch": 9})
    fenced = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert other.error_code is fenced


@pytest.mark.parametrize("version", versions("list_transactions"))
async def test_transactions_are_listed_with_filters(doors: Any, version: int, clock: ManualClock) -> None:
    await init(doors)
    await add(doors, 3)
    clock.advance(5_000)

    async def listed(**values: Any) -> list[str]:
        given = {"state_filters": (), "producer_id_filters": (), **values}
        response = await ask(doors, "list_transactions", version, **given)
        return [state.transactional_id for state in response.transaction_states]

    assert await listed() == ["tx"]
    assert await listed(state_filters=("Ongoing",)) == ["tx"]
    assert await listed(state_filters=("CompleteCommit",)) == []
    assert await listed(producer_id_filters=(8,)) == []
    if version >= 1:
        assert await listed(duration_filter=1_000) == ["tx"]
        assert await listed(duration_filter=6_000) == []
    if version >= 2:
        assert await listed(transactional_id_pattern="t.") == ["tx"]
        assert await listed(transactional_id_pattern="t") == []
        broken = await ask(
            doors,
            "list_transactions",
            version,
            state_filters=(),
            producer_id_filters=(),
            transactional_id_pattern="(",
        )
        assert broken.error_code is ErrorCode.invalid_regular_expression


async def test_no_pattern_of_a_client_delays_the_broker_for_long(doors: Any) -> None:
    """Every client may list transactions: with backtracking, the first pattern takes years."""
    name = "a" * 60
    timeout = i32Timedelta.parse(timedelta(seconds=10))
    await ask(doors, "init_producer_id", 1, transactional_id=name, transaction_timeout=timeout)

    async def listed(pattern: str) -> tuple[ErrorCode, list[str]]:
        given = {"state_filters": (), "producer_id_filters": (), "transactional_id_pattern": pattern}
        response = await ask(doors, "list_transactions", 2, **given)
        return response.error_code, [state.transactional_id for state in response.transaction_states]

    assert await listed("(a|aa)+!") == (ErrorCode.none, [])
    assert await listed("(a|aa)+") == (ErrorCode.none, [name])
    # syntax that needs backtracking, and a pattern that takes megabytes
    for refused in ("(?=a)a+", r"(a)\1+", "((a{100}){100}){100}"):
        assert await listed(refused) == (ErrorCode.invalid_regular_expression, [])


async def test_a_transactional_id_is_described(doors: Any) -> None:
    await init(doors)
    await add(doors, 3)
    response = await ask(doors, "describe_transactions", 0, transactional_ids=("tx", "other"))
    known, unknown = response.transaction_states
    assert (known.transaction_state, known.producer_id, known.topics[0].topic) == ("Ongoing", 7, "t")
    assert unknown.error_code is ErrorCode.transactional_id_not_found
    # zero, as from Apache Kafka: generated readers fail on a time below it
    assert (unknown.transaction_start_time.timestamp(), unknown.producer_id, unknown.producer_epoch) == (0, 0, 0)


async def test_no_producers_are_described_of_a_topic_that_cannot_be(doors: Any) -> None:
    topics = [{"name": "a b", "partition_indexes": (0,)}]
    response = await ask(doors, "describe_producers", 0, topics=topics)
    assert response.topics[0].partitions[0].error_code is ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("version", versions("write_txn_markers"))
async def test_markers_are_written_for_other_coordinators(doors: Any, version: int) -> None:
    marker = {
        "producer_id": 7,
        "producer_epoch": 2,
        "transaction_result": True,
        "coordinator_epoch": 4,
        "transaction_version": 2,
        "topics": [{"name": "t", "partition_indexes": (0,)}],
    }
    response = await ask(doors, "write_txn_markers", version, markers=[marker])
    assert response.markers[0].topics[0].partitions[0].error_code is ErrorCode.none
    assert doors.transaction_markers.ends == [TransactionEnd(7, 2, True, 4, 2 if version >= 2 else 0)]


@pytest.mark.parametrize("version", versions("find_coordinator")[1:])
async def test_the_coordinator_of_a_transactional_id_is_found(doors: Any, version: int) -> None:
    response = await ask(doors, "find_coordinator", version, key="tx", key_type=1, coordinator_keys=("tx",))
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host) == (ErrorCode.none, 1, "host")
