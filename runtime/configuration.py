"""Configuration at the border: property files in, frozen pydantic models out, errors that name key, value and what is accepted.

Dotted names (Kafka's own) exist only here, as aliases of the model's fields. Unknown keys are returned, not refused, because
Kafka configurations carry keys for other programs; each daemon decides what to say about them.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """Base of every daemon's settings: frozen, filled by dotted alias or by field name."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore")


SettingsT = TypeVar("SettingsT", bound=Settings)


def read_properties(path: Path) -> dict[str, str]:
    """A Java-style properties file: `key=value` or `key: value`, `#` and `!` comments, `\\` continues a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError("config", str(path), f"the file cannot be read ({error.strerror})") from error
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[key] = value
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    if pending:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    for position, character in enumerate(line):
        if character in "=:":
            return line[:position].strip(), line[position + 1 :].strip().replace("\\\\", "\\")
    return line, ""


def load_settings(model: type[SettingsT], mapping: Mapping[str, object]) -> SettingsT:
    """Validate `mapping` into `model`; ConfigurationError for the first thing wrong, by its dotted key."""
    try:
        return model.model_validate(dict(mapping))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else model.__name__
        value = "(not set)" if first["type"] == "missing" else mapping.get(key, first.get("input"))
        accepted = _accepted(model, key, first["msg"])
        raise ConfigurationError(key, value, accepted) from error


def _accepted(model: type[Settings], key: str, message: str) -> str:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return f"{message}; {field.description}" if field.description else message
    return message


def unknown_keys(model: type[Settings], mapping: Mapping[str, object]) -> list[str]:
    """Keys of `mapping` that the model does not read, sorted."""
    known = {field.alias or name for name, field in model.model_fields.items()} | set(model.model_fields)
    return sorted(key for key in mapping if key not in known)
