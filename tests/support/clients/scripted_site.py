"""A site of two scripted brokers, for tests of clients that look for the responsible broker."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.clients.scripted_broker import NO_TIME, ScriptedBroker

TOPIC_ID = uuid.UUID(int=7)
"""The id of topic t."""


class Site:
    """Two scripted brokers with one topic of one partition, whose leader and coordinator can be
    moved.
    """

    def __init__(self, *brokers: ScriptedBroker) -> None:
        self.brokers = dict(enumerate(brokers, start=1))
        self.leader_id = 1
        self.coordinator_id = 1
        self.errors: list[ErrorCode] = []
        for node_id, broker in self.brokers.items():
            broker.on(3, self.metadata)
            broker.on(0, lambda request, header, node_id=node_id: self.produced(node_id))  # type: ignore[misc]
            broker.on(2, lambda request, header, node_id=node_id: self.offsets(node_id))  # type: ignore[misc]
            broker.on(10, self.found_coordinator)
            broker.on(8, lambda request, header, node_id=node_id: self.committed(node_id))  # type: ignore[misc]

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(broker.address for broker in self.brokers.values())

    def metadata(self, request: Any, header: Any) -> dict[str, Any]:
        partition = {
            "error_code": ErrorCode.none,
            "partition_index": 0,
            "leader_id": self.leader_id,
            "leader_epoch": 4,
            "replica_nodes": (1,),
            "isr_nodes": (1,),
            "offline_replicas": (),
        }
        topic = {"error_code": ErrorCode.none, "name": "t", "topic_id": TOPIC_ID, "is_internal": False}
        wanted = request.topics is None or any(asked.name == "t" for asked in request.topics)
        return {
            "throttle_time": NO_TIME,
            "brokers": [
                {"node_id": node_id, "host": broker.address.host, "port": broker.address.port, "rack": None}
                for node_id, broker in self.brokers.items()
            ],
            "cluster_id": "c",
            "controller_id": -1,
            "topics": [{**topic, "partitions": [partition]}] if wanted else [],
        }

    def _code(self, node_id: int, responsible_id: int, otherwise: ErrorCode) -> ErrorCode:
        if self.errors:
            return self.errors.pop(0)
        return ErrorCode.none if node_id == responsible_id else otherwise

    def produced(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.leader_id, ErrorCode.not_leader_or_follower)
        partition = {"index": 0, "error_code": code, "base_offset": node_id, "record_errors": ()}
        topic = {"name": "t", "topic_id": TOPIC_ID, "partition_responses": [partition]}
        return {"responses": [topic], "throttle_time": NO_TIME}

    def offsets(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.leader_id, ErrorCode.not_leader_or_follower)
        partition = {"partition_index": 0, "error_code": code, "offset": 70 + node_id}
        return {"throttle_time": NO_TIME, "topics": [{"name": "t", "partitions": [partition]}]}

    def found_coordinator(self, request: Any, header: Any) -> dict[str, Any]:
        address = self.brokers[self.coordinator_id].address
        where = {"node_id": self.coordinator_id, "host": address.host, "port": address.port}
        found = {"key": "g", "error_code": ErrorCode.none, **where}
        return {"throttle_time": NO_TIME, "coordinators": [found]}

    def committed(self, node_id: int) -> dict[str, Any]:
        code = self._code(node_id, self.coordinator_id, ErrorCode.not_coordinator)
        partition = {"partition_index": 0, "error_code": code}
        return {"throttle_time": NO_TIME, "topics": [{"name": "t", "partitions": [partition]}]}
