"""Calls that create topics and set quotas, and a client with quotas of its own."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.lone_brokers.lone_broker_process import LoneBroker


def create(client: RawClient, name: str, partitions: int = 1, *, is_validate_only: bool = False) -> Any:
    """Create a topic by the newest version of the request. Returns the result."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    (result,) = client.call(19, 7, {"topics": [topic], "validate_only": is_validate_only}).topics
    return result


def alter(broker: LoneBroker, entity: dict[str, str | None], **values: float | None) -> Any:
    """Set quotas, or remove them with None. Returns the result."""
    ops = [
        {"key": key, "value": 0.0 if value is None else float(value), "remove": value is None}
        for key, value in values.items()
    ]
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    with RawClient(broker.port) as client:
        answer = client.call(49, 1, {"entries": [{"entity": named, "ops": ops}], "validate_only": False})
    (result,) = answer.entries
    assert result.error_code is ErrorCode.none, result.error_message
    return result


def client_id() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


class Limited:
    """A client id of the test's own, with quotas, and connections of it."""

    def __init__(self, broker: LoneBroker) -> None:
        self._broker = broker
        self.client_id = client_id()

    def limit(self, **values: float) -> None:
        alter(self._broker, {"client-id": self.client_id}, **values)

    def connect(self) -> RawClient:
        return RawClient(self._broker.port, client_id=self.client_id)
