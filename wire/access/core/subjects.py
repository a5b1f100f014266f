"""Finds the subjects of a call of the control plane, for the audit log: links, topics, groups,
brokers by name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

NAMES_SHOWN: Final = 20
"""The most names in a line about a request with thousands of topics; the line also has their
number.
"""

_ONE: Final = (("name", "link"), ("link", "link"), ("node_id", "broker"))
_SEVERAL: Final = (
    ("topics", "topics"),
    ("names", "topics"),
    ("changes", "targets"),
    ("partitions", "partitions"),
    ("targets", "partitions"),
    ("groups", "groups"),
)


def subjects_of(request: Any) -> dict[str, str]:
    """Fields for the log by what they name; empty for a request that is about the site."""
    known = {field.name for field in getattr(request, "DESCRIPTOR", _NONE).fields}
    found: dict[str, str] = {}
    if "record" in known:
        record = request.record
        found = {
            "link": record.name,
            "epoch": str(record.epoch),
            "active_site": record.active_site,
            "phase": _enumerated(record, "phase"),
        }
    if any(field in known and getattr(request, field) for field in ("is_dry_run", "is_validate_only")):
        found["is_dry_run"] = "true"
    for field, label in _ONE:
        if field in known and (value := getattr(request, field)) not in ("", 0):
            found[label] = str(value)
    for field, label in _SEVERAL:
        if field in known and (names := list(_names(getattr(request, field)))):
            found[label] = _shown(names)
    return {label: value for label, value in found.items() if value}


def _enumerated(message: Any, field: str) -> str:
    number = getattr(message, field)
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


class _NoFields:
    fields: tuple[()] = ()


_NONE: Final = _NoFields()


def _names(items: Iterable[Any]) -> Iterable[str]:
    for item in items:
        if isinstance(item, str):
            yield item
            continue
        named = next((str(getattr(item, key)) for key in ("topic", "name", "group") if hasattr(item, key)), "")
        number = next((getattr(item, key) for key in ("partition", "index") if hasattr(item, key)), None)
        yield named if number is None else f"{named}-{number}"


def _shown(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ",".join(names[:NAMES_SHOWN]) + (f",... ({len(names)} in all)" if more > 0 else "")
