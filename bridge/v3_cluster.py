"""API v3 of the cluster: brokers, topics, partitions, replicas and configs. ACL requests are
answered as by a site without an authorizer.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from confluent_kafka.admin import NewTopic, ResourceType  # type: ignore[attr-defined]
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.admin import KnownPartition, KnownTopic
from bridge.core.documents import DocumentT, read_texts, write
from bridge.core.media_types import JSON, check_v3_content, negotiate
from bridge.core.refusals import bad_request, resource_not_found
from bridge.core.v3_resources import Document, Resources
from bridge.gate import caller_of
from bridge.parts import Parts, number_in_path

CLUSTER = "/v3/clusters/{cluster}"
_TOPIC = f"{CLUSTER}/topics/{{topic}}"
_BROKER = f"{CLUSTER}/brokers/{{broker}}"


class ReplicasOfPartition(msgspec.Struct, forbid_unknown_fields=True):
    """The replicas of one partition of a new topic."""

    partition_id: int
    broker_ids: list[int]


class ConfigValue(msgspec.Struct, forbid_unknown_fields=True):
    """A config of a new topic."""

    name: str
    value: str | None = None


class TopicRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new topic."""

    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    replicas_assignments: list[ReplicasOfPartition] = []
    configs: list[ConfigValue] = []
    validate_only: bool = False


class TopicChange(msgspec.Struct, forbid_unknown_fields=True):
    """More partitions for a topic."""

    partitions_count: int


class ConfigUpdate(msgspec.Struct, forbid_unknown_fields=True):
    """A config's new value."""

    value: str | None


class ConfigChange(msgspec.Struct, forbid_unknown_fields=True):
    """One change of several."""

    name: str
    value: str | None = None
    operation: str = "SET"


class ConfigChanges(msgspec.Struct, forbid_unknown_fields=True):
    """Changes that are made together."""

    data: list[ConfigChange]


def answer_v3(document: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A document of v3."""
    return Response(write(document), status, headers, JSON)


async def resources_of(parts: Parts, request: Request) -> tuple[Resources, Any]:
    """The builder of documents, and the current metadata. Raises Refused: 406 for a response type
    other than JSON, 404 for another cluster.
    """
    negotiate(request.headers.get("accept"), (JSON,))
    metadata = await caller_of(request).user.admin.metadata()
    wanted = request.path_params.get("cluster", metadata.cluster_id)
    if wanted != metadata.cluster_id:
        raise resource_not_found(f"Cluster {wanted}")
    make = Resources(address=parts.address(request), cluster_id=str(wanted), quoted=partial(quote, safe="-"))
    return make, metadata


async def document_v3(parts: Parts, request: Request, kind: type[DocumentT]) -> DocumentT:
    """The body of a request."""
    check_v3_content(request.headers.get("content-type"))
    async with parts.bodies.whole(request) as body:
        return read_texts(body, kind)


class V3Cluster:
    """The handlers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes of these handlers."""
        partition = f"{_TOPIC}/partitions/{{partition}}"
        routes = [
            Route("/v3/clusters", self.clusters),
            Route(CLUSTER, self.cluster),
            Route(f"{CLUSTER}/acls", self.acls, methods=["GET", "POST", "DELETE"]),
            Route(f"{CLUSTER}/brokers", self.brokers),
            Route(_BROKER, self.broker),
            Route(f"{_BROKER}/partition-replicas", self.replicas_of_broker),
            Route(f"{CLUSTER}/topics", self.topics),
            Route(f"{CLUSTER}/topics", self.create_topic, methods=["POST"]),
            Route(_TOPIC, self.topic),
            Route(_TOPIC, self.grow_topic, methods=["PATCH"]),
            Route(_TOPIC, self.delete_topic, methods=["DELETE"]),
            Route(f"{_TOPIC}/partitions", self.partitions),
            Route(partition, self.partition),
            Route(f"{partition}/replicas", self.replicas),
            Route(f"{partition}/replicas/{{broker}}", self.replica),
        ]
        for owner in (_TOPIC, _BROKER):
            routes += [
                Route(f"{owner}/configs", self.configs),
                Route(f"{owner}/configs:alter", self.alter_configs, methods=["POST"]),
                Route(f"{owner}/configs/{{name}}", self.config),
                Route(f"{owner}/configs/{{name}}", self.set_config, methods=["PUT"]),
                Route(f"{owner}/configs/{{name}}", self.reset_config, methods=["DELETE"]),
            ]
        return routes

    async def clusters(self, request: Request) -> Response:
        """The only cluster."""
        make, metadata = await resources_of(self._parts, request)
        document = make.collection("Cluster", (), [make.cluster(_controller(metadata))])
        document["metadata"]["self"] = f"{make.address}/v3/clusters"
        return answer_v3(document)

    async def cluster(self, request: Request) -> Response:
        """The cluster by its id."""
        make, metadata = await resources_of(self._parts, request)
        return answer_v3(make.cluster(_controller(metadata)))

    async def acls(self, request: Request) -> Response:
        """There is no authorizer."""
        await resources_of(self._parts, request)
        raise bad_request("No Authorizer is configured.")

    async def brokers(self, request: Request) -> Response:
        """All brokers."""
        make, _ = await resources_of(self._parts, request)
        nodes = (await caller_of(request).user.admin.describe_cluster()).nodes
        return answer_v3(make.collection("Broker", ("brokers",), (_broker(make, node) for node in nodes)))

    async def broker(self, request: Request) -> Response:
        """One broker."""
        make, _ = await resources_of(self._parts, request)
        wanted = number_in_path(request, "broker")
        for node in (await caller_of(request).user.admin.describe_cluster()).nodes:
            if node.id == wanted:
                return answer_v3(_broker(make, node))
        raise resource_not_found(f"Broker {wanted}")

    async def replicas_of_broker(self, request: Request) -> Response:
        """The replicas that a broker has."""
        make, metadata = await resources_of(self._parts, request)
        wanted = number_in_path(request, "broker")
        held = [
            _replica(make, topic.topic, partition, wanted)
            for _, topic in sorted(metadata.topics.items())
            for _, partition in sorted(topic.partitions.items())
            if wanted in partition.replicas
        ]
        return answer_v3(make.collection("Replica", ("brokers", wanted, "partition-replicas"), held))

    async def topics(self, request: Request) -> Response:
        """All topics."""
        make, metadata = await resources_of(self._parts, request)
        described = await caller_of(request).user.admin.describe_topics(sorted(metadata.topics))
        return answer_v3(make.collection("Topic", ("topics",), (_topic(make, topic) for topic in described)))

    async def create_topic(self, request: Request) -> Response:
        """Create a topic; with `validate_only`, check whether it could be created."""
        make, _ = await resources_of(self._parts, request)
        wanted = await document_v3(self._parts, request, TopicRequest)
        await caller_of(request).user.admin.create_topic(_new_topic(wanted), is_validating=wanted.validate_only)
        if wanted.validate_only:
            document = make.topic(
                wanted.topic_name,
                is_internal=False,
                replication_factor=wanted.replication_factor or 0,
                partition_count=wanted.partitions_count or 0,
            )
            return answer_v3(document)
        made = await caller_of(request).user.admin.describe_changed_topic(wanted.topic_name, partition_count=1)
        document = _topic(make, made)
        return answer_v3(document, 201, {"location": document["metadata"]["self"]})

    async def topic(self, request: Request) -> Response:
        """One topic."""
        make, _ = await resources_of(self._parts, request)
        found = await caller_of(request).user.admin.describe_topic(request.path_params["topic"])
        return answer_v3(_topic(make, found))

    async def grow_topic(self, request: Request) -> Response:
        """Give the topic more partitions."""
        make, _ = await resources_of(self._parts, request)
        wanted = await document_v3(self._parts, request, TopicChange)
        name = request.path_params["topic"]
        await caller_of(request).user.admin.grow_topic(name, wanted.partitions_count)
        found = await caller_of(request).user.admin.describe_changed_topic(
            name, partition_count=wanted.partitions_count
        )
        return answer_v3(_topic(make, found))

    async def delete_topic(self, request: Request) -> Response:
        """Delete the topic."""
        await resources_of(self._parts, request)
        await caller_of(request).user.admin.delete_topic(request.path_params["topic"])
        return Response(status_code=204)

    async def partitions(self, request: Request) -> Response:
        """The partitions of a topic."""
        make, _ = await resources_of(self._parts, request)
        topic = await self._found(request)
        items = [make.partition(topic.topic, n, leader=_leader(item)) for n, item in sorted(topic.partitions.items())]
        return answer_v3(make.collection("Partition", ("topics", topic.topic, "partitions"), items))

    async def partition(self, request: Request) -> Response:
        """One partition."""
        make, _ = await resources_of(self._parts, request)
        topic, partition = await self._found_partition(request)
        return answer_v3(make.partition(topic, partition.id, leader=_leader(partition)))

    async def replicas(self, request: Request) -> Response:
        """The replicas of a partition."""
        make, _ = await resources_of(self._parts, request)
        topic, partition = await self._found_partition(request)
        items = [_replica(make, topic, partition, broker) for broker in partition.replicas]
        path = ("topics", topic, "partitions", partition.id, "replicas")
        return answer_v3(make.collection("Replica", path, items))

    async def replica(self, request: Request) -> Response:
        """One replica."""
        make, _ = await resources_of(self._parts, request)
        topic, partition = await self._found_partition(request)
        broker = number_in_path(request, "broker")
        if broker not in partition.replicas:
            raise resource_not_found(f"Replica {broker} of {topic}-{partition.id}")
        return answer_v3(_replica(make, topic, partition, broker))

    async def _found(self, request: Request) -> KnownTopic:
        return await caller_of(request).user.admin.topic(request.path_params["topic"])

    async def _found_partition(self, request: Request) -> tuple[str, KnownPartition]:
        topic, number = await self._found(request), number_in_path(request, "partition")
        partition = topic.partitions.get(number)
        if partition is None:
            raise resource_not_found(f"Partition {topic.topic}-{number}")
        return topic.topic, partition

    async def configs(self, request: Request) -> Response:
        """All configs of a topic or a broker."""
        make, _ = await resources_of(self._parts, request)
        path, fields, kind, name = _owner(request)
        found = await caller_of(request).user.admin.configs(kind, name)
        items = [make.config(path, fields, entry) for _, entry in sorted(found.items())]
        list_kind = "TopicConfig" if kind is ResourceType.TOPIC else "BrokerConfig"
        return answer_v3(make.collection(list_kind, (*path, "configs"), items))

    async def config(self, request: Request) -> Response:
        """One config."""
        make, _ = await resources_of(self._parts, request)
        path, fields, kind, name = _owner(request)
        entry = (await caller_of(request).user.admin.configs(kind, name)).get(request.path_params["name"])
        if entry is None:
            raise resource_not_found(f"Config {request.path_params['name']}")
        return answer_v3(make.config(path, fields, entry))

    async def set_config(self, request: Request) -> Response:
        """Give one config a value."""
        wanted = await document_v3(self._parts, request, ConfigUpdate)
        return await self._alter(request, {request.path_params["name"]: wanted.value})

    async def reset_config(self, request: Request) -> Response:
        """Reset one config to its default."""
        return await self._alter(request, {request.path_params["name"]: None})

    async def alter_configs(self, request: Request) -> Response:
        """Change several configs at once, all or none."""
        wanted = await document_v3(self._parts, request, ConfigChanges)
        changes: dict[str, str | None] = {}
        for change in wanted.data:
            if change.operation not in ("SET", "DELETE"):
                raise bad_request(f"operation {change.operation!r} of {change.name}: accepted are SET and DELETE")
            changes[change.name] = change.value if change.operation == "SET" else None
        return await self._alter(request, changes)

    async def _alter(self, request: Request, changes: dict[str, str | None]) -> Response:
        await resources_of(self._parts, request)
        _, _, kind, name = _owner(request)
        await caller_of(request).user.admin.alter_configs(kind, name, changes)
        return Response(status_code=204)


def _new_topic(wanted: TopicRequest) -> NewTopic:
    config = {entry.name: entry.value for entry in wanted.configs if entry.value is not None}
    placed = sorted(wanted.replicas_assignments, key=lambda item: item.partition_id)
    if placed:
        if [item.partition_id for item in placed] != list(range(len(placed))):
            raise bad_request("replicas_assignments must name the partitions 0, 1, 2 and so on, each once")
        return NewTopic(
            wanted.topic_name, len(placed), replica_assignment=[item.broker_ids for item in placed], config=config
        )
    count, factor = wanted.partitions_count, wanted.replication_factor
    return NewTopic(wanted.topic_name, -1 if count is None else count, -1 if factor is None else factor, config=config)


def _controller(metadata: Any) -> int | None:
    return metadata.controller_id if metadata.controller_id >= 0 else None


def _leader(partition: Any) -> int | None:
    return partition.leader if partition.leader >= 0 else None


def _broker(make: Resources, node: Any) -> Document:
    return make.broker(node.id, host=node.host, port=node.port, rack=node.rack)


def _topic(make: Resources, topic: Any) -> Document:
    factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    return make.topic(
        topic.name,
        is_internal=bool(topic.is_internal),
        replication_factor=factor,
        partition_count=len(topic.partitions),
    )


def _replica(make: Resources, topic: str, partition: Any, broker: int) -> Document:
    is_leader, is_in_sync = broker == partition.leader, broker in partition.isrs
    return make.replica(topic, partition.id, broker, is_leader=is_leader, is_in_sync=is_in_sync)


def _owner(request: Request) -> tuple[tuple[object, ...], Document, ResourceType, str]:
    """Path, fields, kind and name of the resource that owns the configs."""
    if "topic" in request.path_params:
        topic = request.path_params["topic"]
        return ("topics", topic), {"topic_name": topic}, ResourceType.TOPIC, topic
    broker = number_in_path(request, "broker")
    return ("brokers", broker), {"broker_id": broker}, ResourceType.BROKER, str(broker)
