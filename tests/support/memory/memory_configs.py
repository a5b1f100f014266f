"""Broker configs kept in a file, for brokers that run without ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path


class FileConfigStore:
    """The configs that `broker/settings/config_store.py` keeps in ZooKeeper, for a single
    broker.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._take: Callable[[Mapping[str, str], Mapping[str, str]], None] = lambda *_: None

    def _stored(self) -> dict[str, dict[str, str]]:
        stored: dict[str, dict[str, str]] = json.loads(self._path.read_text()) if self._path.exists() else {}
        return stored

    async def follow(self, take: Callable[[Mapping[str, str], Mapping[str, str]], None]) -> None:
        self._take = take
        self._tell()

    def _tell(self) -> None:
        stored = self._stored()
        self._take(stored.get("all", {}), stored.get("this", {}))

    async def change(self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        stored, key = self._stored(), "this" if name else "all"
        stored[key] = change(stored.get(key, {}))
        self._path.write_text(json.dumps(stored))
        self._tell()
