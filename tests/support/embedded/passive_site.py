"""A pair of sites from `antipode up` whose clients reach the passive site alone: librdkafka's admin
client, requests to each broker itself, and `antipode links reset`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kio.schema.errors import ErrorCode

from runtime.addresses import parse_host_port
from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import EmbeddedSites
from tests.support.eventually import eventually_sync
from wire.client.raw_client import KafkaClient, call_client
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.private import SITE_METADATA

WITHIN_S = 120
"""Each request is answered within this time, in any state of the active site."""
CREATE_TOPICS = 19
DELETE_TOPICS = 20

Result = TypeVar("Result")


class PassiveSite:
    """Sites a (active) and b; clients can reach b alone."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites
        bootstraps = sites.put_clients_behind_proxies()
        sites.toxiproxy_server().get_proxy(f"{sites.broker('a').name}-client").disable()
        self.bootstrap = bootstraps["b"]
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        eventually_sync(lambda: sorted(self.admin.list_topics(timeout=30).brokers) == [1, 1001])

    def port(self, site: str) -> int:
        """The port of the site's broker itself."""
        return parse_host_port(self.sites.bootstrap(site)).port

    def partitions(self, site: str, topic: str) -> int:
        """The number of partitions that the site itself has; 0 if it does not have the topic."""
        with RawClient(self.port(site)) as client:
            (found,) = client.metadata(topic, api_key=SITE_METADATA).topics
            return len(found.partitions)

    def has_copy(self, topic: str) -> bool:
        """True if b has the topic, and its broker leads and reports it."""
        wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
        with RawClient(self.port("b")) as client:
            (found,) = client.fetch(FetchRequest([wanted], max_wait_ms=0, replica_id=-2)).topics[0].partitions
        return found.error_code == ErrorCode.none and self.partitions("b", topic) == 1

    def copy_configs(self, topic: str) -> Mapping[str, str | None]:
        """The configs that are set on b's own copy."""

        async def ask(client: KafkaClient) -> Mapping[str, str | None]:
            return (await client.topic_configs([topic]))[topic]

        return self._at_b(ask)

    def described(self, topic: str, name: str) -> str:
        """A config as b returns it to an application."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        value = self.admin.describe_configs([resource])[resource].result(WITHIN_S)[name].value
        assert isinstance(value, str)
        return value

    def asking_a(self, act: Callable[[], Result]) -> Result:
        """The act's result after a has answered b's request: on a busy machine b continues without
        an answer after a second or two.
        """
        while True:
            before = self.sites.unanswered_questions("b")
            try:
                outcome = act()
            except KafkaException:
                if self.sites.unanswered_questions("b") == before:
                    raise
            else:
                if self.sites.unanswered_questions("b") == before:
                    return outcome

    def create(self, topic: str, **settings: Any) -> None:
        """Create a topic through b."""
        answer(self.admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=-1, **settings)]))

    def create_at(self, site: str, topic: str) -> None:
        """Create a topic of one partition through the site's own broker."""
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        values = {"topics": [wanted], "timeout": timedelta(seconds=WITHIN_S), "validate_only": False}
        with RawClient(self.port(site)) as client:
            assert client.call(CREATE_TOPICS, 7, values).topics[0].error_code == ErrorCode.none

    def make_again(self, topic: str) -> None:
        """Delete the topic through a's own broker and create it again there, with one record."""
        with RawClient(self.port("a")) as client:
            values = {"topic_names": [topic], "timeout": timedelta(seconds=WITHIN_S)}
            assert client.call(DELETE_TOPICS, 5, values).responses[0].error_code == ErrorCode.none
        self.create_at("a", topic)
        records = batch([b"of the new one"], timestamp_ms=SystemClock().now_ms())  # an old one would soon be deleted
        with RawClient(self.port("a")) as client:
            eventually_sync(lambda: client.produce(topic, records).error_code == ErrorCode.none)

    def topic_id(self, site: str, topic: str) -> object:
        """The id of the site's own topic."""
        with RawClient(self.port(site)) as client:
            (found,) = client.metadata(topic, api_key=SITE_METADATA).topics
            return found.topic_id

    def is_the_same(self, topic: str) -> bool:
        """Both sites have the topic under one id, with its one record."""
        if self.topic_id("a", topic) != self.topic_id("b", topic):
            return False
        wanted = TopicToFetch(topic, None, [PartitionToFetch(0, 0, 1_000_000)])
        with RawClient(self.port("b")) as client:
            (partition,) = client.fetch(FetchRequest([wanted], max_wait_ms=0, replica_id=-2)).topics[0].partitions
            assert partition.high_watermark == 1, partition
            return True

    def reset(self, topic: str, *more: str) -> Any:
        """`antipode links reset`: its JSON for the one topic."""
        printed = self.sites.command("links", "reset", "a-b", "--topic", topic, "--output", "json", *more)
        assert printed.returncode == 0, printed.stderr
        (found,) = json.loads(printed.stdout)
        return found

    def alter(self, topic: str, name: str, value: str | None) -> None:
        """Set a config through b, or take it off."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        answer(self.admin.incremental_alter_configs([resource]))

    def grow(self, topic: str, total: int) -> None:
        """Give a topic so many partitions through b."""
        answer(self.admin.create_partitions([NewPartitions(topic, total)]))

    def delete(self, topic: str) -> None:
        """Delete a topic through b."""
        answer(self.admin.delete_topics([topic]))

    def _at_b(self, work: Callable[[KafkaClient], Awaitable[Result]]) -> Result:
        return call_client(self.bootstrap, work, site_local=True)


def answer(outcomes: Mapping[Any, Future[Any]]) -> None:
    """Wait for the one result. Raises KafkaException after a refusal, and TimeoutError without a
    response.
    """
    (outcome,) = outcomes.values()
    outcome.result(WITHIN_S)


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """Kafka's name of the error that the act ends with, and its text."""
    with pytest.raises(KafkaException) as caught:
        act()
    error = caught.value.args[0]
    return error.name(), error.str()
