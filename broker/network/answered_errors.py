"""Finds the error codes in a response: its own, and those of topics, partitions, groups, resources.

The types of an answer determine where its codes are. Each type is examined once.

Caller: broker/dispatch.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

ERROR_FIELD: Final = "error_code"


def errors_in(entity: Any) -> Iterator[int]:
    """Every code but 0 (none) in a kio entity, as often as it is there."""
    kind: Any = type(entity)
    has_error, inner = _places(kind)
    if has_error and entity.error_code:
        yield int(entity.error_code)
    for name in inner:
        value = getattr(entity, name)
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None:
                yield from errors_in(item)


# cached by type: an answer of a thousand partitions looks at no field names
@cache
def _places(entity_type: Any) -> tuple[bool, tuple[str, ...]]:
    """A pair: True if the type has an error code of its own, and its fields that may contain
    others.
    """
    found = fields(entity_type)
    inner = tuple(field.name for field in found if (kind := _entity_type(field.type)) and any(_places(kind)))
    return any(field.name == ERROR_FIELD for field in found), inner


def _entity_type(annotation: Any) -> Any:
    """The type of entities that a field holds, one or many; None for another field."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return annotation if is_dataclass(annotation) else None
