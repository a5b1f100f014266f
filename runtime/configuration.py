"""Reads properties files into frozen pydantic models. Errors name the key, the value and the
accepted values.

Dotted names (Kafka's own) exist only here, as aliases of the model's fields. Unknown keys are
returned, not refused, because Kafka's files have keys for other programs; each daemon decides which
of them to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.process import OperationalFailure


class ConfigurationError(OperationalFailure):
    """A setting cannot be used. The message has a line for it and for each other one that was found
    with it.
    """

    def __init__(self, key: str, value: object, accepted: str, *, others: Sequence[ConfigurationError] = ()) -> None:
        own = f"configuration {key}={value!r} is not usable: {accepted}"
        super().__init__("\n".join([own, *map(str, others)]))
        self.key = key
        self.value = value
        self.accepted = accepted
        self.others = tuple(others)


class UnreadableFile(ConfigurationError):
    """A file of settings cannot be read at all."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__("config", str(path), f"the file cannot be read ({reason})")
        self.args = (f"{path} cannot be read: {reason}",)


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
        raise UnreadableFile(path, error.strerror or str(error)) from error
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
    """Validate `mapping` into `model`. Raises ConfigurationError for the invalid values, with their
    dotted keys.
    """
    try:
        return model.model_validate(dict(mapping))
    except ValidationError as error:
        raise together([_unusable(model, mapping, one) for one in error.errors()]) from error


def _unusable(model: type[Settings], mapping: Mapping[str, object], found: Mapping[str, Any]) -> ConfigurationError:
    key = str(found["loc"][0]) if found["loc"] else model.__name__
    value = "(not set)" if found["type"] == "missing" else mapping.get(key, found.get("input"))
    return ConfigurationError(key, value, _accepted(model, key, found["msg"].removeprefix("Value error, ")))


def together(found: Iterable[ConfigurationError]) -> ConfigurationError:
    """One error for several, at least one, which names each key once."""
    by_key: dict[str, ConfigurationError] = {}
    for error in found:
        for one in (error, *error.others):
            by_key.setdefault(one.key, one)
    first, *others = by_key.values()
    alone = [ConfigurationError(one.key, one.value, one.accepted) for one in others]
    return ConfigurationError(first.key, first.value, first.accepted, others=alone)


def check_all(*checks: Callable[[], object]) -> None:
    """Do every check of a file, and raise the ConfigurationErrors of all of them together."""
    found: list[ConfigurationError] = []
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            found.append(error)
    if found:
        raise together(found)


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
