"""Facts of the whole site: its controller and the controller's epoch, its cluster id, and the last
block of producer ids.
"""

from __future__ import annotations

from msgspec import Struct

from wire.znodes.documents import Fields, MalformedZnode, encode_document
from wire.znodes.layout import CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH, PRODUCER_ID_BLOCK


class ControllerRegistration(Struct, frozen=True, kw_only=True):
    """Payload of `/controller`."""

    controller_id: int
    timestamp_ms: int
    grpc_address: str = ""


class ProducerIdBlock(Struct, frozen=True, kw_only=True):
    """Payload of `/latest_producer_id_block`: the block given out last, both ends included."""

    broker_id: int
    first_producer_id: int
    last_producer_id: int


def encode_controller(registration: ControllerRegistration) -> bytes:
    """Payload of the election node."""
    return encode_document(
        {
            "version": 1,
            "brokerid": registration.controller_id,
            "timestamp": str(registration.timestamp_ms),
            "grpc_address": registration.grpc_address,
        }
    )


def decode_controller(payload: bytes) -> ControllerRegistration:
    """The active controller."""
    fields = Fields.parse(CONTROLLER, payload)
    return ControllerRegistration(
        controller_id=fields.number("brokerid"),
        timestamp_ms=fields.number("timestamp", 0, bits=64),
        grpc_address=fields.text("grpc_address", ""),
    )


def encode_controller_epoch(epoch: int) -> bytes:
    """Decimal text, as Kafka writes it."""
    return str(epoch).encode()


def decode_controller_epoch(payload: bytes) -> int:
    """The epoch of the latest controller."""
    try:
        return int(payload.decode())
    except ValueError as error:
        raise MalformedZnode(CONTROLLER_EPOCH, f"{payload[:40]!r} is not a decimal number") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    """Payload of `/cluster/id`."""
    return encode_document({"version": "1", "id": cluster_id})


def decode_cluster_id(payload: bytes) -> str:
    """The cluster's id."""
    return Fields.parse(CLUSTER_ID, payload).text("id")


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The latest block; its ends are texts, as Kafka writes them."""
    return encode_document(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first_producer_id),
            "block_end": str(block.last_producer_id),
        }
    )


def decode_producer_id_block(payload: bytes) -> ProducerIdBlock:
    """The latest block."""
    fields = Fields.parse(PRODUCER_ID_BLOCK, payload)
    return ProducerIdBlock(
        broker_id=fields.number("broker"),
        first_producer_id=fields.number("block_start", bits=64),
        last_producer_id=fields.number("block_end", bits=64),
    )
