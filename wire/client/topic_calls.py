"""A client's calls about topics, their configs and brokers: asked of the controller or of any
broker, retried.
"""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from wire.client.client_errors import broker_error
from wire.client.cluster_access import ClusterAccess

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
INCREMENTAL_ALTER_CONFIGS: Final = 44
DESCRIBE_CONFIGS: Final = 32
UNREGISTER_BROKER: Final = 64

RESOURCE_TOPIC: Final = 2
DYNAMIC_TOPIC_CONFIG: Final = 1
"""Config source of values that are set on the topic itself (KIP-226)."""

TOPICS_DESCRIBED_AT_ONCE: Final = 100
"""Topics whose configs one request asks for: our broker does not yield while it answers one
request, which takes about 0.2 ms a topic.
"""

_SET, _DELETE = 0, 1
_ADMIN_TIMEOUT: Final = dt.timedelta(seconds=25)
"""Less than the 30 s of a connection: a broker that waits so long for a deletion still reports the
cause of the wait.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """The outcome of CreateTopics or DeleteTopics for one topic."""

    name: str
    error_code: ErrorCode
    error_message: str | None
    topic_id: UUID | None


class TopicCalls(ClusterAccess):
    """Topics and configs."""

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """Create topics; outcomes by topic. A retry after a lost answer finds
        TOPIC_ALREADY_EXISTS.
        """
        values = {
            "topics": [
                {
                    "name": topic.name,
                    "num_partitions": topic.partition_count,
                    "replication_factor": topic.replication_factor,
                    "assignments": (),
                    "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
                }
                for topic in topics
            ],
            "timeout": _ADMIN_TIMEOUT,
            "validate_only": validate_only,
        }
        response = await self._retried(lambda: self._call_controller(CREATE_TOPICS, values))
        return [_outcome(topic) for topic in response.topics]

    async def delete_topics(self, names: Sequence[str]) -> list[TopicOutcome]:
        """Delete topics; outcomes by topic. A retry after a lost answer finds
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        values = {
            "topic_names": names,
            # from version 6 on the same topics in another form; each version encodes its own fields
            "topics": [{"name": name, "topic_id": None} for name in names],
            "timeout": _ADMIN_TIMEOUT,
        }
        response = await self._retried(lambda: self._call_controller(DELETE_TOPICS, values))
        # the next metadata request must not answer from the cache
        self.forget_leaders(names)
        return [_outcome(topic) for topic in response.responses]

    async def grow_topic(self, name: str, partition_count: int) -> TopicOutcome:
        """Give a topic as many partitions; INVALID_PARTITIONS when it has them already."""
        values = {
            "topics": [{"name": name, "count": partition_count, "assignments": None}],
            "timeout": _ADMIN_TIMEOUT,
            "validate_only": False,
        }
        response = await self._retried(lambda: self._call_controller(CREATE_PARTITIONS, values))
        # the known metadata lack the new partitions
        self.forget_leaders([name])
        return _outcome(response.results[0])

    async def unregister_broker(self, node_id: int) -> str:
        """Unregister a broker that will not return. Returns the reason of a refusal, empty if the
        broker is unregistered.
        """

        async def attempt() -> str:
            connection = await self._any_connection()
            response = await connection.call(UNREGISTER_BROKER, {"broker_id": node_id})
            # the broker could not forward the request; another one may know the new controller
            if response.error_code == ErrorCode.not_controller:
                raise broker_error(response.error_code, node=str(connection.address), api_key=UNREGISTER_BROKER)
            if response.error_code:
                return f"{response.error_code.name.upper()}: {response.error_message or 'the broker gives no reason'}"
            return ""

        return await self._retried(attempt)

    async def alter_topic_configs(
        self, name: str, *, to_set: Mapping[str, str], to_remove: Sequence[str] = ()
    ) -> TopicOutcome:
        """Set some configs of a topic and remove others, without a change to all other configs
        (KIP-339).
        """
        changes = [{"name": key, "config_operation": _SET, "value": value} for key, value in to_set.items()]
        changes += [{"name": key, "config_operation": _DELETE, "value": None} for key in to_remove]
        resource = {"resource_type": RESOURCE_TOPIC, "resource_name": name, "configs": changes}
        values = {"resources": [resource], "validate_only": False}
        response = await self._retried(lambda: self._call_controller(INCREMENTAL_ALTER_CONFIGS, values))
        altered = response.responses[0]
        return TopicOutcome(
            name=name, error_code=altered.error_code, error_message=altered.error_message, topic_id=None
        )

    async def topic_configs(
        self,
        names: Sequence[str],
        *,
        is_set_only: bool = True,
        left_out: Collection[ErrorCode] = (ErrorCode.unknown_topic_or_partition,),
    ) -> dict[str, dict[str, str | None]]:
        """Configs by topic: those set on the topic itself, or all. Topics with an error of
        `left_out`, by default those that do not exist, are left out. Raises BrokerError for others.
        """
        configs: dict[str, dict[str, str | None]] = {}
        for first in range(0, len(names), TOPICS_DESCRIBED_AT_ONCE):
            some = names[first : first + TOPICS_DESCRIBED_AT_ONCE]
            configs |= await self._some_topic_configs(some, is_set_only=is_set_only, left_out=left_out)
        return configs

    async def _some_topic_configs(
        self, names: Sequence[str], *, is_set_only: bool, left_out: Collection[ErrorCode]
    ) -> dict[str, dict[str, str | None]]:
        resources = [
            {"resource_type": RESOURCE_TOPIC, "resource_name": name, "configuration_keys": None} for name in names
        ]

        async def attempt() -> dict[str, dict[str, str | None]]:
            connection = await self._any_connection()
            response = await connection.call(DESCRIBE_CONFIGS, {"resources": resources})
            configs = {}
            for result in response.results:
                if result.error_code in left_out:
                    continue
                if result.error_code:
                    node = str(connection.address)
                    message = result.error_message
                    raise broker_error(result.error_code, message=message, node=node, api_key=DESCRIBE_CONFIGS)
                configs[result.resource_name] = {
                    config.name: config.value
                    for config in result.configs
                    if not is_set_only or config.config_source == DYNAMIC_TOPIC_CONFIG
                }
            return configs

        return await self._retried(attempt)

    async def _call_controller(self, api_key: int, values: Mapping[str, Any]) -> Any:
        await self._refresh([])
        controller = self._cluster.controller_id
        # any broker forwards, but the controller answers without the detour
        connection = await (self.connection(controller) if controller >= 0 else self._any_connection())
        response = await connection.call(api_key, values)
        # this code is not an outcome of a topic: the controller has moved, and a retry finds the
        # next one
        for outcome in _outcomes(response):
            if outcome.error_code == ErrorCode.not_controller:
                raise broker_error(outcome.error_code, node=str(connection.address), api_key=api_key)
        return response


def _outcomes(response: Any) -> Sequence[Any]:
    """The outcomes by topic, under one name for all APIs."""
    for name in ("topics", "results", "responses"):
        if hasattr(response, name):
            found: Sequence[Any] = getattr(response, name)
            return found
    return ()


def _outcome(topic: Any) -> TopicOutcome:
    return TopicOutcome(
        name=topic.name or "",
        error_code=topic.error_code,
        error_message=getattr(topic, "error_message", None),
        topic_id=getattr(topic, "topic_id", None),
    )
