"""The doors of handlers of groups over a coordinator in memory, and requests of all versions."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta, i64Timedelta

from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_turn import GroupLimits
from broker.groups.group_routing import ImageRouting
from broker.handlers.registry import load_handlers
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.metadata.request_context import RequestContext
from broker.site.access_digests import SiteAccess
from broker.site.group_reports import GroupReports
from broker.transactions.core.transaction_machine import TransactionLimits
from broker.transactions.core.transaction_states import Transaction
from broker.transactions.transaction_coordinator import TransactionCoordinator
from broker.transactions.transaction_routing import TransactionRouting
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_log import MemoryLog
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.batches.group_records import OFFSETS_TOPIC
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import BrokerInfo, Endpoint, LinkRecord, PartitionState, SiteView, TopicInfo
from wire.protocol import schemas

HANDLERS = {module.__name__.rpartition(".")[2]: module for module in load_handlers().values()}


SECOND = timedelta(seconds=10)


LINK = LinkRecord(
    name="l", source_site="a", target_site="b", epoch=4, active_site="b", group_whitelist=["linked"], is_routed=True
)


def broker_info(node_id: int) -> BrokerInfo:
    return BrokerInfo(node_id=node_id, endpoints=[Endpoint(listener="CLIENT", host="host", port=node_id)])


class ProducerIds:
    """Always the same id."""

    async def next_id(self) -> int:
        return 77


class NoMarkers:
    """A sender of markers that fails the test if it must send one."""

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        raise AssertionError("there is no transaction")


class SilentSite:
    """The other site does not answer."""

    async def ask_site(self, *_: object) -> None:
        return None


class Doors(SimpleNamespace):
    """The parts of a broker that the group handlers use."""

    authorizer = NO_AUTHORIZER


@asynccontextmanager
async def group_doors(clock: ManualClock) -> AsyncIterator[Doors]:
    """The doors, until the test ends."""
    log = MemoryLog()
    log.epochs = {0: 1, 1: 1}
    partitions = [PartitionState(partition=index, leader=1) for index in range(2)]
    batch = ControlBatch(
        is_full=True,
        brokers=[broker_info(1)],
        topics=[
            TopicInfo(name=OFFSETS_TOPIC, topic_id=b"o" * 16, partitions=partitions),
            TopicInfo(name="t", topic_id=b"t" * 16, partitions=partitions),
        ],
        links=[LINK],
    )
    image = apply_batch(ClusterImage(site="a", node_id=1), batch)
    image = with_peer_view(
        image, SiteView(site="b", version=1, brokers=[broker_info(2001)], group_coordinators=[2001] * 8)
    )
    coordinator = GroupCoordinator(GroupLimits(initial_rebalance_delay_ms=0), log, ImageRouting(lambda: image), clock)
    coordinator.refresh_leadership()
    await eventually(lambda: not coordinator.is_loading)
    routing = TransactionRouting(lambda: image)
    transactions = TransactionCoordinator(
        TransactionLimits(), MemoryLog(), routing, clock, producer_ids=ProducerIds(), markers=NoMarkers()
    )
    yield Doors(
        groups=coordinator,
        transactions=transactions,
        transaction_routing=routing,
        active_site=SilentSite(),
        cluster=Cluster(image),
        group_reports=GroupReports(
            lambda: image, coordinator, transactions, clock, SiteAccess(lambda: image, has_authorizer=True)
        ),
        configs=SimpleNamespace(
            current=SimpleNamespace(offsets_partition_count=2, rebalance_protocols=("classic", "consumer"))
        ),
        producer_ids=ProducerIds(),
        topic_creator=SimpleNamespace(request_missing=lambda topic, image: None),
    )
    await coordinator.stop()
    await transactions.stop()


def request_of(api_key: int, version: int, **values: Any) -> Any:
    """A request of the version with those of the values that it has; nested parts are dicts with
    their class's name.
    """
    main = schemas.request_type(api_key, version)
    module = sys.modules[main.__module__]

    def build(kind: type[Any], given: dict[str, Any]) -> Any:
        fields = {}
        for field in dataclasses.fields(kind):
            if field.name in given:
                fields[field.name] = convert(given[field.name])
        return kind(**fields)

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            kind = next(getattr(module, name) for name in value["kinds"] if hasattr(module, name))
            return build(kind, value)
        return tuple(convert(item) for item in value) if isinstance(value, list) else value

    return build(main, values)


class AwaitedExchange:
    """The way to answer a handler that reads the frame itself."""

    def __init__(self, version: int) -> None:
        self.header = SimpleNamespace(api_version=version, body_position=0)
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        self.may_be_sent: Callable[[], bool] | None = None

    def throttle_time_ms(self) -> int:
        return 0

    def check_before_send(self, may_be_sent: Callable[[], bool]) -> None:
        self.may_be_sent = may_be_sent

    def defer_until(self, waited: asyncio.Future[Any], answering: Callable[[asyncio.Future[Any]], None]) -> None:
        waited.add_done_callback(answering)

    def count_errors(self, codes: Iterable[int]) -> None:
        self.errors = [code for code in codes if code]

    def reply_body(self, parts: Sequence[bytes], *, body_size: int) -> None:
        body = b"".join(parts)
        assert len(body) == body_size
        self.body.set_result(body)


async def ask(doors: Doors, name: str, version: int, *, software: str = "", **values: Any) -> Any:
    """The handler's response after a trip through its bytes."""
    module = HANDLERS[name]
    context = RequestContext(
        api_key=module.API_KEY,
        api_version=version,
        correlation_id=1,
        client_id="client",
        listener="CLIENT",
        client_address="127.0.0.1:50000",
        client_software=software,
    )
    request = request_of(module.API_KEY, version, **values)
    assert schemas.decode(type(request), schemas.encode(request)) == request
    if hasattr(module, "handle_frame"):
        exchange = AwaitedExchange(version)
        module.handle_frame(schemas.encode(request), exchange, doors)
        return schemas.decode(schemas.response_type(module.API_KEY, version), await exchange.body)
    response = await module.handle(request, context, doors)
    decoded = schemas.decode(schemas.response_type(module.API_KEY, version), schemas.encode(response))
    assert decoded == response
    return decoded


def versions(name: str) -> list[int]:
    return list(range(HANDLERS[name].MIN_VERSION, HANDLERS[name].MAX_VERSION + 1))


def join_values(group: str, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": i32Timedelta.parse(SECOND),
        "rebalance_timeout": i32Timedelta.parse(SECOND),
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"kinds": ["JoinGroupRequestProtocol"], "name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
        "reason": "because",
    }


async def joined(doors: Doors, group: str, version: int = 9) -> str:
    """A member alone in its group, assigned."""
    reply = await ask(doors, "join_group", version, **join_values(group))
    if reply.error_code is ErrorCode.member_id_required:
        reply = await ask(doors, "join_group", version, **join_values(group, reply.member_id))
    assert (reply.error_code, reply.generation_id, reply.leader) == (ErrorCode.none, 1, reply.member_id)
    assert [member.member_id for member in reply.members] == [reply.member_id]
    member: str = reply.member_id
    return member


def commit_values(group: str, topic: str = "t", **values: Any) -> dict[str, Any]:
    partition = {
        "kinds": ["OffsetCommitRequestPartition"],
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": 2,
        "committed_metadata": None,
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": i64Timedelta.parse(timedelta(milliseconds=-1)),
        "topics": [
            {
                "kinds": ["OffsetCommitRequestTopic"],
                "name": topic,
                "topic_id": uuid.UUID(bytes=topic[:1].encode() * 16),
                "partitions": [partition],
            }
        ],
        **values,
    }
