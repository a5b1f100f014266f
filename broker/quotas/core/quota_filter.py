"""Finds the client quota entities that match a DescribeClientQuotas request (KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from wire.rules.client_quotas import ENTITY_TYPES, IP, QuotaEntity


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
    """Raises UnknownEntityType or BadFilter, with Kafka's messages."""
    kinds = [part.kind for part in parts]
    for part in parts:
        if not part.kind:
            raise BadFilter("Unexpected empty filter component entity type")
        if part.kind not in ENTITY_TYPES:
            raise UnknownEntityType(f"Custom entity type '{part.kind}' not supported")
        if kinds.count(part.kind) > 1:
            raise BadFilter(f"Duplicate {part.kind} filter component entity type")
        if part.match is Match.EXACT and part.name is None:
            raise BadFilter("Request specified MATCH_TYPE_EXACT, but set the match string to null.")
        if part.match is not Match.EXACT and part.name is not None:
            kind = "MATCH_TYPE_DEFAULT" if part.match is Match.DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise BadFilter(f"Request specified {kind}, but also specified a match string.")
    if IP in kinds and len(kinds) > 1:
        raise BadFilter(
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."
        )


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
