"""The JSON documents of znodes: one way to read a field, and one error for a malformed znode.

Fields that a reader does not know are ignored, so that a newer writer can add some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from msgspec import Struct

from wire.protocol.json_documents import is_number_text, parse_json

NODE_BYTES_MAX: Final = 500_000
"""Upper bound of a node's content that a client's request may make. ZooKeeper takes 1 MiB in a
request; it ends the connection for a larger one.
"""


class MalformedZnode(ValueError):
    """A znode's payload cannot be understood; names the path, and what is wrong with
    which field.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"znode {path}: {problem}")
        self.path = path
        self.problem = problem


def encode_document(document: Mapping[str, Any]) -> bytes:
    """The document as JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


REQUIRED: Any = object()
"""Instead of a default: the field must be there."""


class Fields(Struct, frozen=True):
    """The fields of one JSON object with typed access; each failure names path and field."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, path: str, payload: bytes) -> Fields:
        try:
            document = parse_json(payload)
        except ValueError as error:
            raise MalformedZnode(path, f"not JSON: {error}") from error
        if not isinstance(document, dict):
            raise MalformedZnode(path, f"a JSON object is needed, found {type(document).__name__}")
        return cls(path, document)

    def fail(self, problem: str) -> NoReturn:
        raise MalformedZnode(self.path, problem)

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            self.fail(f"field {name!r} is missing")
        return default

    def number(self, name: str, default: int = REQUIRED, *, bits: int = 32) -> int:
        value = self._value(name, default)
        return self._integer(name, int(value) if isinstance(value, str) and is_number_text(value) else value, bits=bits)

    def _integer(self, name: str, value: object, *, bits: int = 32) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            self.fail(f"field {name!r} is {value!r}, not a whole number of {bits} bits")
        return value

    def text(self, name: str, default: str = REQUIRED) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            self.fail(f"field {name!r} is {value!r}, not a text")
        return value

    def mapping(self, name: str, default: Mapping[str, Any] = REQUIRED) -> Mapping[str, Any]:
        value = self._value(name, default)
        if not isinstance(value, dict):
            self.fail(f"field {name!r} is {value!r}, not an object")
        return value

    def _list(self, name: str, value: object) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"field {name!r} is {value!r}, not a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name, self._value(name, REQUIRED))
        if not all(isinstance(value, str) for value in values):
            self.fail(f"field {name!r} is {values!r}, not a list of texts")
        return tuple(values)

    def numbers(self, name: str) -> tuple[int, ...]:
        return tuple(self._integer(name, value) for value in self._list(name, self._value(name, REQUIRED)))

    def replicas(self, name: str, default: Mapping[str, Any] = REQUIRED) -> dict[int, tuple[int, ...]]:
        return {
            self._key(name, index): tuple(self._integer(f"{name}.{index}", node) for node in self._list(name, replicas))
            for index, replicas in self.mapping(name, default).items()
        }

    def numbers_by_number(self, name: str) -> dict[int, dict[int, int]]:
        """Whole numbers of 64 bits under two keys that are numbers; empty when the field is
        missing.
        """
        return {
            self._key(name, outer): {
                self._key(name, inner): self._integer(f"{name}.{outer}.{inner}", value, bits=64)
                for inner, value in Fields(self.path, found).mapping(outer).items()
            }
            for found in (self.mapping(name, {}),)
            for outer in found
        }

    def _key(self, name: str, key: str) -> int:
        if key.startswith("-") or not is_number_text(key):
            self.fail(f"field {name!r} has the key {key!r}, not a whole number")
        return self._integer(name, int(key))
