"""Finds the client quota entities that match a DescribeClientQuotas request (KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from wire.rules.client_quotas import ENTITY_TYPES, IP, QuotaEntity

_KINDS: Final = ", ".join(ENTITY_TYPES)


class Match(IntEnum):
    """The way in which a part of a filter matches, by Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class FilterPart(NamedTuple):
    """An entity type that entities must have, with this name unless any name matches."""

    kind: str
    match: Match
    name: str | None


class UnknownEntityType(ValueError):
    """The filter names an entity type that does not exist."""


class BadFilter(ValueError):
    """The filter contradicts itself; says how."""


def check_filter(parts: Sequence[FilterPart]) -> None:
    """Raises UnknownEntityType or BadFilter where Kafka refuses the filter."""
    kinds = [part.kind for part in parts]
    for part in parts:
        if not part.kind:
            raise BadFilter(f"the filter has a component without an entity type; accepted are {_KINDS}")
        if part.kind not in ENTITY_TYPES:
            raise UnknownEntityType(f"the filter names the entity type {part.kind!r}; accepted are {_KINDS}")
        if kinds.count(part.kind) > 1:
            raise BadFilter(f"the filter names the entity type {part.kind} more than once; accepted is once")
        if part.match is Match.EXACT and part.name is None:
            raise BadFilter(f"the filter asks for a certain {part.kind} without a name; accepted is a name")
        if part.match is not Match.EXACT and part.name is not None:
            wanted = "the default" if part.match is Match.DEFAULT else "any"
            raise BadFilter(
                f"the filter asks for {wanted} {part.kind} and has the name {part.name!r}; accepted is no name"
            )
    if IP in kinds and len(kinds) > 1:
        others = " and ".join(kind for kind in kinds if kind != IP)
        raise BadFilter(f"the filter names {IP} together with {others}; accepted is {IP} alone")


def is_chosen(entity: QuotaEntity, parts: Sequence[FilterPart], *, is_strict: bool) -> bool:
    """True when the entity has every part that is asked for, and in a strict filter no other."""
    names = dict(entity)
    if is_strict and len(names) != len(parts):
        return False
    return all(part.kind in names and _fits(names[part.kind], part) for part in parts)


def _fits(name: str | None, part: FilterPart) -> bool:
    match part.match:
        case Match.EXACT:
            return name == part.name
        case Match.DEFAULT:
            return name is None
        case Match.ANY:
            return True
