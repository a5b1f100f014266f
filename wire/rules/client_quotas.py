"""Client quotas as all parts of a site understand them: who they are for, which there are, which
values they take.

An entity is a tuple of (type, name) in the order of `ENTITY_TYPES`; the name None is Kafka's
default, for all clients without an entity of their own. Users and client ids may be named alone or
together, ip addresses alone. Messages are those that Kafka gives. Source: KIP-546, KIP-599,
KIP-612.

Callers: the controller decides and stores, brokers enforce; the paths are in
wire/znodes/config_znodes.py.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import Final

from wire.control.cluster_pb2 import ClientQuota, QuotaEntityPart

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Quotas of users and client ids."""
QUOTA_KEYS: Final = (*CLIENT_KEYS, CONNECTION_CREATION_RATE)

_WHOLE_NUMBERS_MAX: Final[Mapping[str, int]] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}

QuotaEntity = tuple[tuple[str, str | None], ...]
QuotaValues = Mapping[str, float]
Quota = tuple[QuotaEntity, str, float]
"""An entity, the name of one of its quotas, and the quota's value."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity with its types in a fixed order; an unknown type comes last."""
    return tuple(
        sorted(parts, key=lambda part: ENTITY_TYPES.index(part[0]) if part[0] in ENTITY_TYPES else len(ENTITY_TYPES))
    )


def entity_from_message(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    """Decode the form in which processes of a site send an entity."""
    return quota_entity((part.type, part.name if part.HasField("name") else None) for part in parts)


def entity_message(entity: QuotaEntity) -> list[QuotaEntityPart]:
    """The form in which processes of a site send it to each other."""
    return [
        QuotaEntityPart(type=kind) if name is None else QuotaEntityPart(type=kind, name=name) for kind, name in entity
    ]


def quota_message(entity: QuotaEntity, values: QuotaValues) -> ClientQuota:
    """A whole quota in the form in which processes of a site send it to each other."""
    return ClientQuota(entity=entity_message(entity), values=values)


def refusal_of_entity(entity: QuotaEntity) -> str | None:
    """The reason why this entity cannot have a quota; None when it can."""
    if not entity:
        return f"the client quota names no entity; accepted are {', '.join(ENTITY_TYPES)}"
    kinds = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            return f"the client quota names the entity type {kind!r}; accepted are {', '.join(ENTITY_TYPES)}"
        if kinds.count(kind) > 1:
            return f"the client quota names the entity type {kind} more than once; accepted is once"
        if name == "":
            return f"the {kind} of the client quota is empty; accepted is a name, or the default"
    if IP not in kinds:
        return None
    if len(kinds) > 1:
        return f"the client quota names {IP} together with {' and '.join(kind for kind in kinds if kind != IP)}; accepted is {IP} alone"
    name = entity[0][1]
    return None if name is None or _is_address(name) else f"{IP}={name}; accepted is an IPv4 or IPv6 address"


def refusal_of_value(entity: QuotaEntity, key: str, value: float) -> str | None:
    """The reason why the entity cannot have this value; None when it can."""
    keys = (CONNECTION_CREATION_RATE,) if entity[0][0] == IP else CLIENT_KEYS
    if key not in keys:
        return f"quota {key!r} of {' and '.join(kind for kind, _ in entity)}; accepted are {', '.join(keys)}"
    most = _WHOLE_NUMBERS_MAX.get(key)
    if most is None:
        return None if value > 0 and not math.isinf(value) else f"{key}={value}; accepted is a number above 0"
    # as doubles, as in Kafka: 2**63 is the double nearest to the greatest LONG
    if 0 < value <= float(most) and abs(value - round(value)) < 1e-6:
        return None
    return f"{key}={value}; accepted is a whole number from 1 to {most}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def quota_texts(values: QuotaValues) -> dict[str, str]:
    """Return all quotas of an entity in ZooKeeper's form."""
    return {key: quota_text(key, value) for key, value in values.items()}


def quota_text(key: str, value: float) -> str:
    """The value as ZooKeeper keeps it: whole numbers without a point."""
    most = _WHOLE_NUMBERS_MAX.get(key)
    return repr(float(value)) if most is None else str(min(round(value), most))
