"""Reads properties files into frozen pydantic models. Errors name the key, the value and the
accepted values.

Dotted names (Kafka's own) exist only here, as aliases of the model's fields. Unknown keys are
returned, not refused, because Kafka's files have keys for other programs; each daemon decides which
of them to report.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.process import OperationalFailure


class ConfigurationError(OperationalFailure):
    """A setting cannot be used."""

    def __init__(self, key: str, value: object, accepted: str) -> None:
        super().__init__(f"configuration {key}={value!r} is not usable: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


class Settings(BaseModel):
    """Base of every daemon's settings: frozen, filled by dotted alias or by field name. pydantic
    builds the validator of a class when it is used first; those that are only derived from need
    none.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore", defer_build=True)


SettingsT = TypeVar("SettingsT", bound=Settings)

SIMILARITY_MIN = 0.85
"""The similarity of two keys that differ by one or two letters, but by no whole word."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*\\?)\s*[=:]?\s*")
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|[\\=:#! tnrf])")
_ESCAPES = {**{same: same for same in "\\=:#! "}, "t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """A file as Java reads it: `key=value`, `key: value` or `key value`, `#` and `!` comments, `\\`
    continues a line, `\\=` is `=`.

    Two differences to Java: valid UTF-8 is read as UTF-8, with or without a byte order mark. A
    backslash before a character that needs none is kept, as in `orders\\.eu`, since the pattern
    would be another one without it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError("config", str(path), f"the file cannot be read ({error.strerror})") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return dict(_split(line) for line in _logical_lines(text))


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: str | None = None
    for raw in _LINE_END.split(text):
        line = raw.strip()
        if pending is None and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending = (pending or "") + (line[:-1] if is_continued else line)
        if not is_continued:
            lines.append(pending)
            pending = None
    return [line for line in (*lines, pending) if line]


def _split(line: str) -> tuple[str, str]:
    found = _KEY.match(line)
    assert found is not None
    return _unescaped(found[1]), _unescaped(line[found.end() :])


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1]) or chr(int(found[1][1:], 16)), text)


def load_settings(model: type[SettingsT], mapping: Mapping[str, object]) -> SettingsT:
    """Validate `mapping` into `model`. Raises ConfigurationError for the first invalid value, with
    its dotted key.
    """
    try:
        return model.model_validate(dict(mapping))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else model.__name__
        value = "(not set)" if first["type"] == "missing" else mapping.get(key, first.get("input"))
        accepted = _accepted(model, key, first["msg"].removeprefix("Value error, "))
        raise ConfigurationError(key, value, accepted) from error


def _accepted(model: type[Settings], key: str, message: str) -> str:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return f"{message}; {field.description}" if field.description else message
    return message


def similar_key(key: str, known: Collection[str]) -> str:
    """The known key that a misspelt key probably means; empty if no key is similar."""
    return next(iter(get_close_matches(key, sorted(known), n=1, cutoff=SIMILARITY_MIN)), "")


def unknown_keys(model: type[Settings], mapping: Mapping[str, object]) -> list[str]:
    """Keys of `mapping` that the model does not read, sorted."""
    known = {field.alias or name for name, field in model.model_fields.items()} | set(model.model_fields)
    return sorted(key for key in mapping if key not in known)
