"""The resources of API v3 as documents: kind, the resource's address, its fields, and the addresses
of related resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]

CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
"""Kafka's numbers for the source of a config's value."""

_SINGULAR = {
    "topics": "topic",
    "partitions": "partition",
    "replicas": "replica",
    "brokers": "broker",
    "configs": "config",
    "broker-configs": "broker-config",
    "consumer-groups": "consumer-group",
    "consumers": "consumer",
    "assignments": "assignment",
    "lags": "lag",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Makes the documents of one cluster, with links that begin with `address`."""

    address: str
    cluster_id: str
    quoted: Callable[[str], str]
    """A name as it is written in a link."""

    def link(self, *path: object) -> str:
        """The address of a resource of the cluster."""
        parts = ("v3", "clusters", self.cluster_id, *path)
        return f"{self.address}/" + "/".join(self.quoted(str(part)) for part in parts)

    def related(self, *path: object) -> Document:
        """A link to another resource."""
        return {"related": self.link(*path)}

    def resource(self, kind: str, path: tuple[object, ...], fields: Mapping[str, Any]) -> Document:
        """One resource."""
        return {
            "kind": f"Kafka{kind}",
            "metadata": {"self": self.link(*path), "resource_name": self._name(path)},
            "cluster_id": self.cluster_id,
            **fields,
        }

    def collection(self, kind: str, path: tuple[object, ...], items: Iterable[Document]) -> Document:
        """A list of resources."""
        return {"kind": f"Kafka{kind}List", "metadata": {"self": self.link(*path), "next": None}, "data": list(items)}

    def _name(self, path: tuple[object, ...]) -> str:
        """`crn:///kafka=c/topic=t/partition=0` for topics/t/partitions/0."""
        parts = [f"kafka={self.cluster_id}"]
        remaining = list(path)
        while remaining:
            collection = str(remaining.pop(0))
            if remaining and collection in _SINGULAR:
                parts.append(f"{_SINGULAR[collection]}={remaining.pop(0)}")
            else:
                parts.append(collection)
        return "crn:///" + "/".join(parts)

    def cluster(self, controller: int | None) -> Document:
        """The cluster."""
        fields: Document = {
            "acls": self.related("acls"),
            "brokers": self.related("brokers"),
            "broker_configs": self.related("broker-configs"),
            "consumer_groups": self.related("consumer-groups"),
            "topics": self.related("topics"),
            "partition_reassignments": self.related("topics", "-", "partitions", "-", "reassignment"),
        }
        if controller is not None:
            fields["controller"] = self.related("brokers", controller)
        return self.resource("Cluster", (), fields)

    def broker(self, node_id: int, *, host: str, port: int, rack: str | None) -> Document:
        """A broker."""
        path = ("brokers", node_id)
        fields = {
            "broker_id": node_id,
            "host": host,
            "port": port,
            "rack": rack,
            "configs": self.related(*path, "configs"),
            "partition_replicas": self.related(*path, "partition-replicas"),
        }
        return self.resource("Broker", path, fields)

    def topic(self, name: str, *, is_internal: bool, replication_factor: int, partition_count: int) -> Document:
        """A topic."""
        path = ("topics", name)
        fields = {
            "topic_name": name,
            "is_internal": is_internal,
            "replication_factor": replication_factor,
            "partitions_count": partition_count,
            "partitions": self.related(*path, "partitions"),
            "configs": self.related(*path, "configs"),
            "partition_reassignments": self.related(*path, "partitions", "-", "reassignment"),
        }
        return self.resource("Topic", path, fields)

    def partition(self, topic: str, number: int, *, leader: int | None) -> Document:
        """A partition."""
        path = ("topics", topic, "partitions", number)
        fields: Document = {"topic_name": topic, "partition_id": number}
        if leader is not None:
            fields["leader"] = self.related(*path, "replicas", leader)
        fields["replicas"] = self.related(*path, "replicas")
        fields["reassignment"] = self.related(*path, "reassignment")
        return self.resource("Partition", path, fields)

    def replica(self, topic: str, number: int, broker: int, *, is_leader: bool, is_in_sync: bool) -> Document:
        """A replica."""
        fields = {
            "topic_name": topic,
            "partition_id": number,
            "broker_id": broker,
            "is_leader": is_leader,
            "is_in_sync": is_in_sync,
            "broker": self.related("brokers", broker),
        }
        return self.resource("Replica", ("topics", topic, "partitions", number, "replicas", broker), fields)

    def config(self, owner: tuple[object, ...], owner_fields: Mapping[str, Any], entry: Any) -> Document:
        """A config of a topic or a broker, from librdkafka's entry."""
        kind = "TopicConfig" if owner[0] == "topics" else "BrokerConfig"
        source = _number(entry.source)
        fields = {
            **owner_fields,
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "is_default": source == 5,
            "is_read_only": bool(entry.is_read_only),
            "is_sensitive": bool(entry.is_sensitive),
            "source": CONFIG_SOURCES.get(source, "UNKNOWN"),
            "synonyms": [
                {
                    "name": synonym.name,
                    "value": None if synonym.is_sensitive else synonym.value,
                    "source": CONFIG_SOURCES.get(_number(synonym.source), "UNKNOWN"),
                }
                for synonym in entry.synonyms.values()
            ],
        }
        return self.resource(kind, (*owner, "configs", entry.name), fields)

    def group(self, name: str, *, is_simple: bool, assignor: str, state: str, coordinator: int | None) -> Document:
        """A consumer group."""
        path = ("consumer-groups", name)
        fields: Document = {
            "consumer_group_id": name,
            "is_simple": is_simple,
            "partition_assignor": assignor,
            "state": state,
            "coordinator": None if coordinator is None else self.related("brokers", coordinator),
            "consumers": self.related(*path, "consumers"),
            "lag_summary": self.related(*path, "lag-summary"),
        }
        return self.resource("ConsumerGroup", path, fields)

    def consumer(self, group: str, *, member: str, instance: str | None, client: str) -> Document:
        """A member of a group."""
        path = ("consumer-groups", group, "consumers", member)
        fields = {
            "consumer_group_id": group,
            "consumer_id": member,
            "instance_id": instance,
            "client_id": client,
            "assignments": self.related(*path, "assignments"),
        }
        return self.resource("Consumer", path, fields)

    def assignment(self, group: str, member: str, topic: str, number: int) -> Document:
        """A partition that is assigned to a member."""
        path = ("consumer-groups", group, "consumers", member, "assignments", topic, "partitions", number)
        fields = {
            "consumer_group_id": group,
            "consumer_id": member,
            "topic_name": topic,
            "partition_id": number,
            "partition": self.related("topics", topic, "partitions", number),
            "lag": self.related("consumer-groups", group, "lags", topic, "partitions", number),
        }
        return self.resource("ConsumerAssignment", path, fields)

    def lag(self, group: str, lag: Lag) -> Document:
        """A group's lag in a partition."""
        fields = {
            "consumer_group_id": group,
            "topic_name": lag.topic,
            "partition_id": lag.partition,
            "current_offset": lag.current_offset,
            "log_end_offset": lag.log_end_offset,
            "lag": lag.records,
            "consumer_id": lag.member,
            "instance_id": lag.instance,
            "client_id": lag.client,
        }
        path = ("consumer-groups", group, "lags", lag.topic, "partitions", lag.partition)
        return self.resource("ConsumerLag", path, fields)

    def lag_summary(self, group: str, lags: list[Lag]) -> Document:
        """The largest lag and the sum of all; there is at least one."""
        largest = max(lags, key=lambda lag: lag.records)
        fields = {
            "consumer_group_id": group,
            "max_lag_consumer_id": largest.member,
            "max_lag_instance_id": largest.instance,
            "max_lag_client_id": largest.client,
            "max_lag_topic_name": largest.topic,
            "max_lag_partition_id": largest.partition,
            "max_lag": largest.records,
            "total_lag": sum(lag.records for lag in lags),
            "max_lag_consumer": self.related("consumer-groups", group, "consumers", largest.member),
            "max_lag_partition": self.related("topics", largest.topic, "partitions", largest.partition),
        }
        return self.resource("ConsumerGroupLagSummary", ("consumer-groups", group, "lag-summary"), fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A group's lag in one partition; member, client and instance are empty if no member reads
    it.
    """

    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    member: str = ""
    client: str = ""
    instance: str | None = None

    @property
    def records(self) -> int:
        """Records that the group has not read."""
        return max(self.log_end_offset - self.current_offset, 0)


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))
