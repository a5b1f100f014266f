"""The same request asked of two brokers, and their answers made comparable: ours and a real Apache
Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.support.clients.raw_client import RawClient

CREATE_TOPICS, DELETE_TOPICS = 19, 20
UNLIKE: frozenset[str] = frozenset({"throttle_time", "error_message", "cluster_id", "host", "port"})
"""Fields in which two clusters differ by their nature, and the texts of errors."""


class Side:
    """One broker: a connection for each request, because an answer may be that the connection is
    closed.
    """

    def __init__(self, bootstrap: str) -> None:
        self.port = int(bootstrap.rpartition(":")[2])
        self.ids: dict[str, UUID] = {}

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        """The answer's plain content, `closed` where the broker closes the connection instead."""
        with RawClient(self.port) as client:
            client.send_call(api_key, version, values)
            try:
                answer = client.answer(api_key, version)
            except ConnectionError:
                return "closed"
        return self.plain(answer)

    def make_topics(self, *names: str, configs: Mapping[str, str] | None = None) -> None:
        """Create topics of one partition and note their ids."""
        settings = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": settings}
            for name in names
        ]
        with RawClient(self.port) as client:
            created = client.call(CREATE_TOPICS, 7, {"topics": topics, "validate_only": False}).topics
            assert [topic.error_code for topic in created] == [0] * len(names), created
        self.ids.update({topic.name: topic.topic_id for topic in created})

    def remove_topics(self) -> None:
        """Delete the topics that were made and are still there."""
        topics = [{"name": None, "topic_id": topic_id} for topic_id in self.ids.values()]
        with RawClient(self.port) as client:
            client.call(DELETE_TOPICS, 6, {"topics": topics, "timeout": timedelta(seconds=10)})

    def plain(self, value: Any) -> Any:
        """An entity as nested values; the ids of the topics that were made here as their names,
        arrays in an order of their own.
        """
        if is_dataclass(value):
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return {name: self.plain(found) for name, found in named.items() if name not in UNLIKE}
        if isinstance(value, tuple):
            return sorted((self.plain(item) for item in value), key=repr)
        if isinstance(value, UUID):
            return next((f"id of {name}" for name, topic_id in self.ids.items() if topic_id == value), "another id")
        return getattr(value, "name", value)


def differences(sides: Sequence[Side], cases: Mapping[str, tuple[int, int, Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """The answers of both sides by the case's name, where they are not the same.

    A case has an API key, a version and the request's fields; a callable in place of a value is
    asked for it with the side.
    """
    found: dict[str, list[Any]] = {}
    for name, (api_key, version, values) in cases.items():
        answers = [side.ask(api_key, version, filled(values, side)) for side in sides]
        if answers[0] != answers[1]:
            found[name] = answers
    return found


def filled(value: Any, side: Side) -> Any:
    """The request's fields for one side, with the results of the callables in their places."""
    if callable(value):
        return value(side)
    if isinstance(value, Mapping):
        return {key: filled(item, side) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(item, side) for item in value]
    return value
