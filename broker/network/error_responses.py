"""The response to a request whose handler failed, or has no handler: the response of its type, with
the error in every field that can have it.

A response with its own error code has nothing else in it. Any other response names each requested
item (topics, groups, resources and the like, with their partitions) with the error: fields that the
request has under the same name are copied. If that gives no response (for example with acks=0), the
result is None, and the connection is closed.

Caller: broker/dispatch.py.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta, i64Timedelta

from broker.network.entities import NO_THROTTLE
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity

ERROR_FIELD: Final = "error_code"
MESSAGE_FIELD: Final = "error_message"
PRODUCE_KEY: Final = 0
_NUMBERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_EMPTY: Final[Mapping[str, Callable[[], Any]]] = {
    **dict.fromkeys(_NUMBERS, lambda: 0),
    "string": str,
    "bytes": bytes,
    "records": bytes,
    "bool": bool,
    "uuid": lambda: None,
    "float64": float,
    "error_code": lambda: ErrorCode.none,
    "timedelta_i32": lambda: NO_THROTTLE,
    "timedelta_i64": lambda: i64Timedelta.parse(i32Timedelta.parse(NO_THROTTLE)),
    "datetime_i64": lambda: datetime.fromtimestamp(0, UTC),
}


def error_response(
    api_key: int,
    version: int,
    request: Any,
    *,
    error: ErrorCode = ErrorCode.unknown_server_error,
    message: str | None = None,
    must_say: bool = True,
) -> Any | None:
    """The response entity with the error, and the message where it has a field for it; None where
    the request can have none. With `must_say` false, an empty response is acceptable if no field
    can have the error.
    """
    # no answer can go out; the caller closes the connection, as for any failed acks=0
    if api_key == PRODUCE_KEY and request.acks == 0:
        return None
    response_type = schemas.response_type(api_key, version)
    results = _results_of(api_key, request, error, message)
    if results is None:
        answer = _filled(response_type, request, error, message)
    else:
        answer = build_entity(response_type, {"throttle_time": i32Timedelta.parse(NO_THROTTLE), **results})
    return answer if not must_say or _says(answer, error) else None


def _results_of(api_key: int, request: Any, error: ErrorCode, message: str | None) -> dict[str, Any] | None:
    """The results of responses that name the items of a request in their own way; None for the
    other responses.
    """
    match api_key:
        case 34:  # AlterReplicaLogDirs
            topics: dict[str, dict[int, None]] = {}
            for topic in (topic for wanted in request.dirs for topic in wanted.topics):
                topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
            return {
                "results": [
                    {
                        "topic_name": name,
                        "partitions": [{"partition_index": index, "error_code": error} for index in indexes],
                    }
                    for name, indexes in topics.items()
                ]
            }
        case 49:  # AlterClientQuotas
            entities = [
                [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity]
                for entry in request.entries
            ]
            said = {"error_code": error, "error_message": message}
            return {"entries": [{**said, "entity": entity} for entity in entities]}
        case 51:  # AlterUserScramCredentials
            users = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
            said = {"error_code": error, "error_message": message}
            return {"results": [{"user": user, **said} for user in users]}
        case _:
            return None


def _filled(entity_type: Any, asked: Any, error: ErrorCode, message: str | None) -> Any:
    """An entity with the fields of `asked` that have the same name, and the error in each error
    field; all other fields have their defaults.

    An item that was requested by a bare name (a group, for example) is named in the entity's first
    name field.
    """
    if isinstance(asked, str):
        asked = types.SimpleNamespace(**{field.name: asked for field in _name_fields(entity_type)[:1]})
    has_error = any(field.name == ERROR_FIELD for field in fields(entity_type))
    values = {field.name: _value(field, asked, error, message, has_error=has_error) for field in fields(entity_type)}
    return entity_type(**values)


def _name_fields(entity_type: Any) -> list[Any]:
    """Fields for a text that must be there, groups' and topics' names among them."""
    return [
        field for field in fields(entity_type) if field.metadata.get("kafka_type") == "string" and not _kind(field)[1]
    ]


def _value(field: Any, asked: Any, error: ErrorCode, message: str | None, *, has_error: bool) -> Any:
    if field.name == ERROR_FIELD:
        return error
    if field.name == MESSAGE_FIELD and message:
        return message
    kind, is_nullable = _kind(field)
    if get_origin(kind) is tuple:
        return _elements(field, get_args(kind)[0], asked, error, message, has_error=has_error)
    if is_dataclass(kind):
        return None if is_nullable else _filled(kind, asked, error, message)
    # only plain values: an entity of the request's type does not fit the response's
    if hasattr(asked, field.name) and type(getattr(asked, field.name)) in (int, str, kind):
        return getattr(asked, field.name)
    if field.default is not MISSING:
        return field.default
    return None if is_nullable else _EMPTY[field.metadata["kafka_type"]]()


def _elements(
    field: Any, element_type: Any, asked: Any, error: ErrorCode, message: str | None, *, has_error: bool
) -> Any:
    # the error at the top is enough; Kafka leaves the rest of such a response empty
    if has_error or not is_dataclass(element_type):
        return ()
    return tuple(_filled(element_type, item, error, message) for item in _asked_for(asked, field.name))


def _asked_for(asked: Any, name: str) -> tuple[Any, ...]:
    """The items that the array `name` of the response answers: those under the same name, else
    those of the only array.
    """
    if asked is None or not is_dataclass(asked):
        return ()
    arrays = {
        field.name: getattr(asked, field.name) or () for field in fields(asked) if get_origin(_kind(field)[0]) is tuple
    }
    found = arrays.get(name)
    if found is None:
        # two arrays without the response's name: it is uncertain which one the response answers
        found = next(iter(arrays.values())) if len(arrays) == 1 else ()
    return tuple(found)


@cache
def _kind_of(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType):
        return next(part for part in get_args(annotation) if part is not types.NoneType), True
    return annotation, False


def _kind(field: Any) -> tuple[Any, bool]:
    kind: tuple[Any, bool] = _kind_of(field.type)
    return kind


def _says(entity: Any, error: ErrorCode) -> bool:
    for field in fields(entity):
        value = getattr(entity, field.name)
        if value is error:
            return True
        items = value if isinstance(value, tuple) else (value,)
        if any(is_dataclass(item) and _says(item, error) for item in items):
            return True
    return False
