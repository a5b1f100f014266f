"""Builds a kio entity of any version from plain values: one call site serves all versions of an
API.

Values are dictionaries, sequences and primitives by kio's field names. A field that the version
does not have is left out, so values must be such that leaving it out is right (`timeout`,
`current_leader_epoch` ...); a field that is not given takes its default, or null where the schema
allows it.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin


def build_entity(entity_type: Any, values: Mapping[str, Any]) -> Any:
    """An entity with these values. TypeError when a field without default is missing."""
    arguments = {}
    for name, element_type, is_array, is_nullable, has_default in _plan(entity_type):
        if name in values:
            arguments[name] = _value(values[name], element_type, is_array=is_array)
        elif not has_default and is_nullable:
            arguments[name] = None
    return entity_type(**arguments)


def _value(value: Any, element_type: Any, *, is_array: bool) -> Any:
    if value is None:
        return None
    if is_array:
        return tuple(_value(element, element_type, is_array=False) for element in value)
    return build_entity(element_type, value) if element_type is not None else value


@cache
def _plan(entity_type: Any) -> tuple[tuple[str, Any, bool, bool, bool], ...]:
    """Name, entity type if nested, is an array, may be null, has a default."""
    return tuple(_describe(field) for field in fields(entity_type))


def _describe(field: Field[Any]) -> tuple[str, Any, bool, bool, bool]:
    kind: Any = field.type
    is_nullable = get_origin(kind) is UnionType
    if is_nullable:
        kind = next(part for part in get_args(kind) if part is not NoneType)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    has_default = field.default is not MISSING
    return field.name, kind if is_dataclass(kind) else None, is_array, is_nullable, has_default
