"""Records of transactions need the right to a transactional id, also if the request names none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from broker.handlers.records import produce
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.network.exchange import Exchange
from runtime.clock import SystemClock
from tests.support.disks.log_batches import batch
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from wire.protocol.streams.frames import RequestHeader
from wire.rules.acls import ResourceType
from wire.rules.principals import ANONYMOUS

TRANSACTIONAL = 0x10


def refusals(*records: bytes | None, transactional_id: str | None = None) -> list[int]:
    """The errors for a client that may use the transactional id `mine` and write to every topic."""
    authorizer = SimpleNamespace(
        may=lambda _, check: check.resource_type is ResourceType.TRANSACTIONAL_ID and check.name == "mine",
        denied=lambda _context, _checks: set(),
    )
    image = ClusterImage(site="a", node_id=1)
    doors: Any = SimpleNamespace(authorizer=authorizer, cluster=SimpleNamespace(image=image))
    dispatcher: Any = SimpleNamespace(clock=SystemClock())
    connection: Any = SimpleNamespace(
        listener="CLIENT", address="127.0.0.1:1", client_software="", principal=ANONYMOUS, sasl=None
    )
    header = RequestHeader(api_key=produce.API_KEY, api_version=9, correlation_id=1, client_id=None, body_position=0)
    exchange = Exchange(dispatcher, connection, header, BrokerMetrics().api("Produce"), 0)
    partitions = [PartitionRecords(index, one) for index, one in enumerate(records)]
    request = ProduceRequest(transactional_id, -1, 1000, [TopicRecords("orders", None, partitions)])
    kept, refused = produce._without_denied(doors, exchange, request)
    assert bool(kept.topics) is not bool(refused)
    return [one.error_code for topic in refused for one in topic.partitions]


def test_records_of_a_transaction_are_refused_without_a_transactional_id() -> None:
    of_another = batch(producer_id=7, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL)
    no_right = ErrorCode.transactional_id_authorization_failed
    assert refusals(of_another) == [no_right]
    assert refusals(batch(), of_another) == [no_right, no_right]
    assert refusals(of_another, transactional_id="another's") == [no_right]
    assert refusals(of_another, transactional_id="mine") == []


def test_other_records_need_no_transactional_id() -> None:
    idempotent = batch(producer_id=7, producer_epoch=0, sequence=0)
    assert refusals(batch(), idempotent, None, b"", b"not a batch") == []
