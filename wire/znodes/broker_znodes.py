"""The registrations of brokers, below `/brokers/ids`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from wire.protocol.json_documents import is_number_text
from wire.znodes.documents import Fields, encode_document
from wire.znodes.layout import broker_path

EPOCH_RAISES: Final = "antipode.epoch_raises"
"""The feature of brokers that know raises of leader epochs (`controller_znodes.py`)."""

PORT_MAX: Final = 65_535


class BrokerEndpoint(Struct, frozen=True, kw_only=True):
    """One advertised listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerRegistration(Struct, frozen=True, kw_only=True):
    """Payload of `/brokers/ids/<id>`; the znode's creation zxid is the broker epoch and is not in
    it.
    """

    node_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    grpc_address: str
    rack: str = ""
    timestamp_ms: int = 0
    jmx_port: int = -1
    knows_epoch_raises: bool = True
    """False for a broker of a release that takes leader epochs from the states of partitions alone,
    as broker and as controller.
    """


def encode_broker(registration: BrokerRegistration) -> bytes:
    """Registration in Kafka's version 5; host and port repeat the first endpoint for old
    readers.
    """
    first = registration.endpoints[0] if registration.endpoints else None
    document: dict[str, Any] = {
        "version": 5,
        "host": first.host if first else None,
        "port": first.port if first else -1,
        "jmx_port": registration.jmx_port,
        "timestamp": str(registration.timestamp_ms),
        "endpoints": [f"{end.listener}://{_bracketed(end.host)}:{end.port}" for end in registration.endpoints],
        "listener_security_protocol_map": {end.listener: end.security_protocol for end in registration.endpoints},
        "features": {EPOCH_RAISES: {"min_version": 1, "max_version": 1}} if registration.knows_epoch_raises else {},
        "grpc_address": registration.grpc_address,
    }
    if registration.rack:
        document["rack"] = registration.rack
    return encode_document(document)


def decode_broker(node_id: int, payload: bytes) -> BrokerRegistration:
    """Registration of broker `node_id`; one without `grpc_address` (another implementation) decodes
    with it empty.
    """
    fields = Fields.parse(broker_path(node_id), payload)
    protocols = fields.mapping("listener_security_protocol_map", {})
    endpoints = tuple(_decode_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))
    return BrokerRegistration(
        node_id=node_id,
        endpoints=endpoints,
        grpc_address=fields.text("grpc_address", ""),
        rack=fields.text("rack", ""),
        timestamp_ms=fields.number("timestamp", 0, bits=64),
        jmx_port=fields.number("jmx_port", -1),
        knows_epoch_raises=EPOCH_RAISES in fields.mapping("features", {}),
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _decode_endpoint(fields: Fields, text: str, protocols: Mapping[str, Any]) -> BrokerEndpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and colon and not port.startswith("-") and is_number_text(port) and int(port) <= PORT_MAX):
        fields.fail(f"endpoint {text!r} is not LISTENER://host:port")
    protocol = protocols.get(listener, "PLAINTEXT")
    if not isinstance(protocol, str):
        fields.fail(f"security protocol of listener {listener!r} is {protocol!r}, not a text")
    return BrokerEndpoint(
        listener=listener, host=host.removeprefix("[").removesuffix("]"), port=int(port), security_protocol=protocol
    )
