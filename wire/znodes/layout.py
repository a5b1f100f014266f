"""A site's ZooKeeper: where each fact is stored and how it is written.

Paths and JSON are those of Kafka's classic layout, so that an operator who knows one can read the
other; Antipode adds a `grpc_address` to two registrations and a tree of its own for links.
Everything here is a pure function between bytes and frozen records. It does not talk to ZooKeeper:
the controller, brokers and site agents do, each through its own client.

Decoders ignore fields that they do not know, so that a newer writer can add some, and raise
`MalformedZnode` with the path and the field when one that they need is absent or of another kind.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from google.protobuf import json_format

from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.json_documents import is_number_text, parse_json
from wire.rules.client_quotas import CLIENT_ID, IP, QUOTA_KEYS, USER, QuotaEntity
from wire.rules.links import InvalidPattern, check_pattern, patterns_of

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
DEFAULT_BROKER = "<default>"
"""Kafka's name for all brokers among the entities of configs."""
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
DEFAULT_ENTITY = "<default>"
"""Kafka's name for all that have no entity of their own; a name that reads like it is escaped."""
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
ANTIPODE = "/antipode"
LINKS = "/antipode/links"

_PLAIN_IN_NODES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
_ESCAPED = re.compile("(?:%[0-9A-Fa-f]{2})+")

PERSISTENT_PATHS = (
    BROKERS,
    BROKER_IDS,
    TOPICS,
    CONFIG,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    CONFIG_CHANGES,
    ADMIN,
    DELETE_TOPICS,
    CLUSTER,
    ANTIPODE,
    LINKS,
)
"""Parents that must exist before anything else is written, in order of creation."""

TOPIC_ID_BYTES = 16


class MalformedZnode(ValueError):
    """A znode's payload cannot be understood; names the path, and what is wrong with
    which field.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"znode {path}: {problem}")
        self.path = path
        self.problem = problem


def broker_path(node_id: int) -> str:
    """Registration of one broker."""
    return f"{BROKER_IDS}/{node_id}"


def topic_path(topic: str) -> str:
    """Assignment of one topic."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    """Leader, epochs and in-sync replicas of one partition."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Config overrides of one topic."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(node_id: str) -> str:
    """Config overrides of one broker; of all of them for an empty id."""
    return f"{BROKER_CONFIGS}/{node_id or DEFAULT_BROKER}"


def user_clients_path(user_node: str) -> str:
    """Parent of the quotas of a user's single clients."""
    return f"{USER_CONFIGS}/{user_node}/clients"


def client_quota_path(entity: QuotaEntity) -> str:
    """Quotas of one entity, in Kafka's layout: `/config/users/<user>/clients/<client>` when it
    names both.
    """
    nodes = {kind: entity_node(name) for kind, name in entity}
    if IP in nodes:
        return f"{IP_CONFIGS}/{nodes[IP]}"
    if USER not in nodes:
        return f"{CLIENT_CONFIGS}/{nodes[CLIENT_ID]}"
    if CLIENT_ID in nodes:
        return f"{user_clients_path(nodes[USER])}/{nodes[CLIENT_ID]}"
    return f"{USER_CONFIGS}/{nodes[USER]}"


def entity_node(name: str | None) -> str:
    """A user's, client's or address's name as that of a node, escaped as Kafka does it."""
    if name is None:
        return DEFAULT_ENTITY
    if not name.strip("."):
        return name.replace(".", "%2E")  # "." and ".." would lead elsewhere
    return "".join(chr(byte) if byte in _PLAIN_IN_NODES else f"%{byte:02X}" for byte in name.encode())


def entity_name(node: str) -> str | None:
    """The name behind a node, None for the default."""
    if node == DEFAULT_ENTITY:
        return None
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(errors="replace"), node)


def delete_topic_path(topic: str) -> str:
    """Mark that a topic is to be deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def config_change_path(sequence: int | None = None) -> str:
    """A notice of a config change; without a number the prefix for a sequential create."""
    suffix = "" if sequence is None else f"{sequence:010d}"
    return f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}{suffix}"


def link_path(link: str) -> str:
    """Record of one link."""
    return f"{LINKS}/{link}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    """One advertised listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """Payload of `/brokers/ids/<id>`; the znode's creation zxid is the broker epoch and is not in
    it.
    """

    node_id: int
    endpoints: tuple[BrokerEndpoint, ...]
    grpc_address: str
    rack: str = ""
    timestamp_ms: int = 0
    jmx_port: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """Payload of `/controller`."""

    controller_id: int
    timestamp_ms: int
    grpc_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """Payload of `/brokers/topics/<topic>`: replicas by partition index, preferred leader first."""

    topic_id: bytes
    partitions: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartitionState:
    """Payload of a partition's `state`; the znode's version is the partition epoch and is not in
    it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    registrations_zxid: int | None = None
    """The newest registration of a broker that the controller knew when it wrote (a broker epoch).
    The write itself may be younger: a controller that gets no more answers from ZooKeeper may still
    write. None in states of Kafka's controllers.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """Payload of `/latest_producer_id_block`: the block given out last, both ends included."""

    broker_id: int
    first_producer_id: int
    last_producer_id: int


def encode_topic_id(topic_id: bytes) -> str:
    """Kafka's text form of a 16-byte uuid: URL-safe base64 without padding."""
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id has {TOPIC_ID_BYTES} bytes, not {len(topic_id)}")
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def decode_topic_id(text: str) -> bytes:
    """The 16 bytes of a topic id; ValueError when `text` is not one."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"topic id {text!r} is not base64: {error}") from error
    if len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"topic id {text!r} has {len(topic_id)} bytes, not {TOPIC_ID_BYTES}")
    return topic_id


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
        "features": {},
        "grpc_address": registration.grpc_address,
    }
    if registration.rack:
        document["rack"] = registration.rack
    return _encode(document)


def decode_broker(node_id: int, payload: bytes) -> BrokerRegistration:
    """Registration of broker `node_id`; one without `grpc_address` (another implementation) decodes
    with it empty.
    """
    fields = _Fields.parse(broker_path(node_id), payload)
    protocols = fields.mapping("listener_security_protocol_map", {})
    endpoints = tuple(_decode_endpoint(fields, text, protocols) for text in fields.texts("endpoints"))
    return BrokerRegistration(
        node_id=node_id,
        endpoints=endpoints,
        grpc_address=fields.text("grpc_address", ""),
        rack=fields.text("rack", ""),
        timestamp_ms=fields.number("timestamp", 0, bits=64),
        jmx_port=fields.number("jmx_port", -1),
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _decode_endpoint(fields: _Fields, text: str, protocols: Mapping[str, Any]) -> BrokerEndpoint:
    listener, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and colon and not port.startswith("-") and is_number_text(port)):
        fields.fail(f"endpoint {text!r} is not LISTENER://host:port")
    protocol = protocols.get(listener, "PLAINTEXT")
    if not isinstance(protocol, str):
        fields.fail(f"security protocol of listener {listener!r} is {protocol!r}, not a text")
    return BrokerEndpoint(
        listener=listener, host=host.removeprefix("[").removesuffix("]"), port=int(port), security_protocol=protocol
    )


def encode_controller(registration: ControllerRegistration) -> bytes:
    """Payload of the election node."""
    return _encode(
        {
            "version": 1,
            "brokerid": registration.controller_id,
            "timestamp": str(registration.timestamp_ms),
            "grpc_address": registration.grpc_address,
        }
    )


def decode_controller(payload: bytes) -> ControllerRegistration:
    """The active controller."""
    fields = _Fields.parse(CONTROLLER, payload)
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


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Assignment in Kafka's version 3."""
    return _encode(
        {
            "version": 3,
            "topic_id": encode_topic_id(assignment.topic_id),
            "partitions": _replica_lists(assignment.partitions),
            "adding_replicas": _replica_lists(assignment.adding_replicas),
            "removing_replicas": _replica_lists(assignment.removing_replicas),
        }
    )


def _replica_lists(partitions: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(partitions[partition]) for partition in sorted(partitions)}


def decode_topic(topic: str, payload: bytes) -> TopicAssignment:
    """Assignment of `topic`; versions 1 and 2, which had no topic id, are refused."""
    fields = _Fields.parse(topic_path(topic), payload)
    try:
        topic_id = decode_topic_id(fields.text("topic_id"))
    except MalformedZnode:
        raise
    except ValueError as error:
        fields.fail(str(error))
    return TopicAssignment(
        topic_id=topic_id,
        partitions=fields.replicas("partitions"),
        adding_replicas=fields.replicas("adding_replicas", {}),
        removing_replicas=fields.replicas("removing_replicas", {}),
    )


def decode_replicas(topic: str, payload: bytes) -> dict[int, tuple[int, ...]]:
    """Replicas by partition in an assignment of any version, with a topic id or without."""
    return _Fields.parse(topic_path(topic), payload).replicas("partitions")


def encode_partition_state(state: StoredPartitionState) -> bytes:
    """Leader, epochs and in-sync replicas."""
    return _encode(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            **({} if state.registrations_zxid is None else {"registrations_zxid": state.registrations_zxid}),
        }
    )


def decode_partition_state(topic: str, partition: int, payload: bytes) -> StoredPartitionState:
    """State of one partition."""
    fields = _Fields.parse(partition_state_path(topic, partition), payload)
    return StoredPartitionState(
        leader=fields.number("leader"),
        leader_epoch=fields.number("leader_epoch"),
        isr=fields.numbers("isr"),
        controller_epoch=fields.number("controller_epoch"),
        registrations_zxid=known if (known := fields.number("registrations_zxid", -1, bits=64)) >= 0 else None,
    )


def encode_topic_config(overrides: Mapping[str, str]) -> bytes:
    """Config overrides of a topic."""
    return _encode({"version": 1, "config": dict(sorted(overrides.items()))})


def decode_topic_config(topic: str, payload: bytes) -> dict[str, str]:
    """Config overrides by name."""
    return decode_config(topic_config_path(topic), payload)


def decode_config(path: str, payload: bytes) -> dict[str, str]:
    """Config overrides by name, of a topic or a broker."""
    fields = _Fields.parse(path, payload)
    overrides = fields.mapping("config")
    for name, value in overrides.items():
        if not isinstance(value, str):
            fields.fail(f"config {name!r} is {value!r}, not a text")
    return dict(overrides)


def quotas_in(path: str, payload: bytes) -> dict[str, float]:
    """The quotas among the configs of a user, a client or an address; MalformedZnode when one is no
    number.
    """
    quotas = {}
    for key, text in decode_entity_config(path, payload).items():
        if key in QUOTA_KEYS:
            try:
                quotas[key] = float(text)
            except ValueError as error:
                raise MalformedZnode(path, f"quota {key!r} is {text!r}, not a number") from error
    return quotas


def decode_entity_config(path: str, payload: bytes) -> dict[str, str]:
    """Decode all configs of a user, a client or an address; a parent node without content has
    none.
    """
    return decode_config(path, payload) if payload else {}


def encode_config_change(entity_path: str) -> bytes:
    """Notice, version 2; `entity_path` is for instance `topics/orders`."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, payload: bytes) -> str:
    """Entity path of a notice; those of version 1 name type and entity apart."""
    fields = _Fields.parse(path, payload)
    if fields.number("version", 2) == 1:
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    return fields.text("entity_path")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Payload of `/cluster/id`."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(payload: bytes) -> str:
    """The cluster's id."""
    return _Fields.parse(CLUSTER_ID, payload).text("id")


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """The latest block; its ends are texts, as Kafka writes them."""
    return _encode(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first_producer_id),
            "block_end": str(block.last_producer_id),
        }
    )


def decode_producer_id_block(payload: bytes) -> ProducerIdBlock:
    """The latest block."""
    fields = _Fields.parse(PRODUCER_ID_BLOCK, payload)
    return ProducerIdBlock(
        broker_id=fields.number("broker"),
        first_producer_id=fields.number("block_start", bits=64),
        last_producer_id=fields.number("block_end", bits=64),
    )


def encode_link(link: LinkRecord) -> bytes:
    """A link record as JSON with the names of the proto."""
    return _encode(json_format.MessageToDict(link, preserving_proto_field_name=True))


def decode_link(name: str, payload: bytes) -> LinkRecord:
    """The link stored under `name`."""
    path = link_path(name)
    fields = _Fields.parse(path, payload)
    try:
        link = json_format.ParseDict(dict(fields.values), LinkRecord(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise MalformedZnode(path, str(error)) from error
    if not link.active_site:
        fields.fail("field 'active_site' is missing or empty")
    if link.name != name:
        fields.fail(f"field 'name' is {link.name!r}, not the name of the node")
    try:
        for pattern in patterns_of(link):
            check_pattern(pattern)
    except InvalidPattern as error:
        raise MalformedZnode(path, str(error)) from error
    return link


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one JSON object with typed access; each failure names path and field."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, path: str, payload: bytes) -> _Fields:
        try:
            document = parse_json(payload)
        except ValueError as error:
            raise MalformedZnode(path, f"not JSON: {error}") from error
        if not isinstance(document, dict):
            raise MalformedZnode(path, f"a JSON object is needed, found {type(document).__name__}")
        return cls(path, document)

    def fail(self, problem: str) -> NoReturn:
        raise MalformedZnode(self.path, problem)

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            self.fail(f"field {name!r} is missing")
        return default

    def number(self, name: str, default: int = _REQUIRED, *, bits: int = 32) -> int:
        value = self._value(name, default)
        return self._integer(name, int(value) if isinstance(value, str) and is_number_text(value) else value, bits=bits)

    def _integer(self, name: str, value: object, *, bits: int = 32) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            self.fail(f"field {name!r} is {value!r}, not a whole number of {bits} bits")
        return value

    def text(self, name: str, default: str = _REQUIRED) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            self.fail(f"field {name!r} is {value!r}, not a text")
        return value

    def mapping(self, name: str, default: Mapping[str, Any] = _REQUIRED) -> Mapping[str, Any]:
        value = self._value(name, default)
        if not isinstance(value, dict):
            self.fail(f"field {name!r} is {value!r}, not an object")
        return value

    def _list(self, name: str, value: object) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"field {name!r} is {value!r}, not a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name, self._value(name, _REQUIRED))
        if not all(isinstance(value, str) for value in values):
            self.fail(f"field {name!r} is {values!r}, not a list of texts")
        return tuple(values)

    def numbers(self, name: str) -> tuple[int, ...]:
        return tuple(self._integer(name, value) for value in self._list(name, self._value(name, _REQUIRED)))

    def replicas(self, name: str, default: Mapping[str, Any] = _REQUIRED) -> dict[int, tuple[int, ...]]:
        partitions: dict[int, tuple[int, ...]] = {}
        for index, replicas in self.mapping(name, default).items():
            if index.startswith("-") or not is_number_text(index):
                self.fail(f"field {name!r} has the partition {index!r}, not a whole number")
            partitions[self._integer(name, int(index))] = tuple(
                self._integer(f"{name}.{index}", node) for node in self._list(name, replicas)
            )
        return partitions
