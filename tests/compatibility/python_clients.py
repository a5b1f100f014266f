"""The clients that are Python packages: confluent-kafka (librdkafka), aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Any

from tests.compatibility.cells import Row
from tests.compatibility.checks import Read, TopicShape, row_of
from tests.support.clients.kafka_clients import (
    METADATA_AGE_MS_MAX,
    POLL_MS,
    Received,
    Record,
    aiokafka_consume,
    aiokafka_produce,
    kafka_python_consume,
    kafka_python_produce,
    librdkafka_consume,
    librdkafka_produce,
)
from tests.support.clients.transactional_clients import aiokafka_transactions, transactional_producer

WITHIN_S = 40
RETENTION = "retention.ms"
Batches = Sequence[tuple[Sequence[bytes], bool]]


class PythonPackage:
    """A client that is installed with the house."""

    name: str
    package: str

    def version(self) -> str:
        """Of the installed package."""
        return f"{self.package} {importlib.metadata.version(self.package)}"

    def missing(self) -> str:
        """Never: it is a pinned dependency."""
        return ""


class Librdkafka(PythonPackage):
    """confluent-kafka."""

    name = "confluent-kafka"
    package = "confluent-kafka"

    def version(self) -> str:
        """With the version of the C library in it."""
        import confluent_kafka

        return f"{super().version()}, librdkafka {confluent_kafka.libversion()[0]}"

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        librdkafka_produce(servers, topic, _records(values), settings={"enable.idempotence": True})

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        settings = {"isolation.level": isolation}
        return _reads(librdkafka_consume(servers, topic, count, group=f"reader-of-{topic}", settings=settings))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        settings = {"group.protocol": protocol}
        return _reads(librdkafka_consume(servers, topic, count, group=group, settings=settings))

    def transact(self, servers: str, topic: str, identity: str, batches: Batches) -> None:
        producer = transactional_producer(servers, identity)
        for values, is_committed in batches:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value, partition=0)
            producer.flush(WITHIN_S)
            (producer.commit_transaction if is_committed else producer.abort_transaction)(WITHIN_S)

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        from confluent_kafka import Consumer

        producer = transactional_producer(servers, identity)
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
        with closing(consumer):
            consumer.subscribe([source])
            copied = 0
            while copied < count:
                found = consumer.consume(min(20, count - copied), timeout=WITHIN_S)
                assert found, "no more records"
                producer.begin_transaction()
                for message in found:
                    producer.produce(target, message.value(), partition=0)
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WITHIN_S)
                producer.commit_transaction(WITHIN_S)
                copied += len(found)

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        from confluent_kafka.cimpl import NewTopic

        wanted = NewTopic(topic, partitions, replicas, config={RETENTION: retention_ms})
        self._administered(servers, lambda admin: admin.create_topics([wanted])[topic].result(WITHIN_S))

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin._config import ConfigResource

        def describe(admin: Any) -> TopicShape:
            partitions = admin.describe_topics(TopicCollection([topic]))[topic].result(WITHIN_S).partitions
            (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
            retention = described.result(WITHIN_S)[RETENTION].value
            return TopicShape(len(partitions), len(partitions[0].replicas), retention)

        shape: TopicShape = self._administered(servers, describe)
        return shape

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

        entry = ConfigEntry(RETENTION, retention_ms, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])

        def alter(admin: Any) -> None:
            (altered,) = admin.incremental_alter_configs([resource]).values()
            altered.result(WITHIN_S)

        self._administered(servers, alter)

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        from confluent_kafka.cimpl import NewPartitions

        wanted = NewPartitions(topic, total)
        self._administered(servers, lambda admin: admin.create_partitions([wanted])[topic].result(WITHIN_S))

    def list_groups(self, servers: str) -> set[str]:
        listed = self._administered(servers, lambda admin: admin.list_consumer_groups().result(WITHIN_S))
        assert not listed.errors, listed.errors
        return {group.group_id for group in listed.valid}

    def delete_topic(self, servers: str, topic: str) -> None:
        self._administered(servers, lambda admin: admin.delete_topics([topic])[topic].result(WITHIN_S))

    def _administered(self, servers: str, ask: Callable[[Any], Any]) -> Any:
        """The client must outlive the answers that it is asked for."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": servers})
        return ask(admin)


class Aiokafka(PythonPackage):
    """aiokafka."""

    name = "aiokafka"
    package = "aiokafka"

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        asyncio.run(aiokafka_produce(servers, topic, _records(values), settings={"enable_idempotence": True}))

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        return _reads(asyncio.run(aiokafka_consume(servers, topic, count, settings={"isolation_level": isolation})))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        return _reads(asyncio.run(aiokafka_consume(servers, topic, count, group=group)))

    def transact(self, servers: str, topic: str, identity: str, batches: Batches) -> None:
        asyncio.run(aiokafka_transactions(servers, topic, identity, [values for values, _ in batches]))

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        asyncio.run(self._copy(servers, source, target, group, identity, count))

    async def _copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        settings: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        consumer = AIOKafkaConsumer(
            source, bootstrap_servers=servers, group_id=group, enable_auto_commit=False, **settings
        )
        async with (
            asyncio.timeout(WITHIN_S),
            AIOKafkaProducer(bootstrap_servers=servers, transactional_id=identity) as producer,
            consumer,
        ):
            copied = 0
            while copied < count:
                for partition, found in (await consumer.getmany(timeout_ms=1000, max_records=20)).items():
                    async with producer.transaction():
                        for message in found:
                            await producer.send(target, message.value, partition=0)
                        offsets = {partition: found[-1].offset + 1}
                        await producer.send_offsets_to_transaction(offsets, group)
                    copied += len(found)

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        from aiokafka.admin import NewTopic

        wanted = NewTopic(topic, partitions, replicas, topic_configs={RETENTION: retention_ms})
        check_codes(self._administered(servers, lambda admin: admin.create_topics([wanted])).topic_errors)

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        async def describe(admin: Any) -> TopicShape:
            (described,) = await admin.describe_topics([topic])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={RETENTION: None})
            (answer,) = await admin.describe_configs([resource])
            ((_, _, _, _, entries),) = answer.resources
            (retention,) = (entry[1] for entry in entries if entry[0] == RETENTION)
            partitions = described["partitions"]
            return TopicShape(len(partitions), len(partitions[0]["replicas"]), retention)

        shape: TopicShape = self._administered(servers, describe)
        return shape

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={RETENTION: retention_ms})
        (answer,) = self._administered(servers, lambda admin: admin.alter_configs([resource]))
        assert [resource[0] for resource in answer.resources] == [0], answer

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        from aiokafka.admin.new_partitions import NewPartitions

        grown = {topic: NewPartitions(total)}
        check_codes(self._administered(servers, lambda admin: admin.create_partitions(grown)).topic_errors)

    def list_groups(self, servers: str) -> set[str]:
        listed = self._administered(servers, lambda admin: admin.list_consumer_groups())
        return {group[0] for group in listed}

    def delete_topic(self, servers: str, topic: str) -> None:
        answer = self._administered(servers, lambda admin: admin.delete_topics([topic]))
        assert all(code == 0 for _, code in answer.topic_error_codes), answer

    def _administered(self, servers: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        from aiokafka.admin import AIOKafkaAdminClient

        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=servers)
            async with asyncio.timeout(WITHIN_S):
                await admin.start()
                try:
                    return await ask(admin)
                finally:
                    await admin.close()

        return asyncio.run(run())


class KafkaPython(PythonPackage):
    """kafka-python."""

    name = "kafka-python"
    package = "kafka-python"

    def produce(self, servers: str, topic: str, values: Sequence[bytes]) -> None:
        kafka_python_produce(servers, topic, _records(values), settings={"acks": "all"})

    def consume(self, servers: str, topic: str, count: int, isolation: str) -> list[Read]:
        settings = {"isolation_level": isolation}
        return _reads(kafka_python_consume(servers, topic, count, group=f"reader-of-{topic}", settings=settings))

    def join(self, servers: str, topic: str, group: str, count: int, protocol: str) -> list[Read]:
        return _reads(kafka_python_consume(servers, topic, count, group=group))

    def transact(self, servers: str, topic: str, identity: str, batches: Batches) -> None:
        with closing(self._transactional(servers, identity)) as producer:
            for values, is_committed in batches:
                producer.begin_transaction()
                for value in values:
                    producer.send(topic, value, partition=0)
                producer.flush()  # an abort drops what has not been sent
                (producer.commit_transaction if is_committed else producer.abort_transaction)()

    def copy(self, servers: str, source: str, target: str, group: str, identity: str, count: int) -> None:
        from kafka import KafkaConsumer
        from kafka.structs import OffsetAndMetadata

        consumer = KafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            metadata_max_age_ms=METADATA_AGE_MS_MAX,
        )
        with closing(self._transactional(servers, identity)) as producer, closing(consumer):
            copied = 0
            while copied < count:
                for partition, found in consumer.poll(POLL_MS, max_records=20).items():
                    producer.begin_transaction()
                    for message in found:
                        producer.send(target, message.value, partition=0)
                    offsets = {partition: OffsetAndMetadata(found[-1].offset + 1, "", -1)}
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    producer.commit_transaction()
                    copied += len(found)

    def _transactional(self, servers: str, identity: str) -> Any:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=servers, transactional_id=identity)
        producer.init_transactions()
        return producer

    def create_topic(self, servers: str, topic: str, partitions: int, replicas: int, retention_ms: str) -> None:
        from kafka.admin import NewTopic

        wanted = NewTopic(topic, partitions, replicas, topic_configs={RETENTION: retention_ms})
        self._administered(servers, lambda admin: admin.create_topics([wanted]))

    def describe_topic(self, servers: str, topic: str) -> TopicShape:
        from kafka.admin import ConfigResource, ConfigResourceType

        def describe(admin: Any) -> TopicShape:
            (described,) = admin.describe_topics([topic])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            retention = admin.describe_configs([resource])["topic"][topic][RETENTION]["value"]
            partitions = described["partitions"]
            return TopicShape(len(partitions), len(partitions[0]["replica_nodes"]), retention)

        shape: TopicShape = self._administered(servers, describe)
        return shape

    def set_retention(self, servers: str, topic: str, retention_ms: str) -> None:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={RETENTION: retention_ms})
        self._administered(servers, lambda admin: admin.alter_configs([resource]))

    def add_partitions(self, servers: str, topic: str, total: int) -> None:
        from kafka.admin import NewPartitions

        self._administered(servers, lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def list_groups(self, servers: str) -> set[str]:
        return {group["group_id"] for group in self._administered(servers, lambda admin: admin.list_groups())}

    def delete_topic(self, servers: str, topic: str) -> None:
        self._administered(servers, lambda admin: admin.delete_topics([topic]))

    def _administered(self, servers: str, ask: Callable[[Any], Any]) -> Any:
        from kafka.admin import KafkaAdminClient

        with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
            return ask(admin)


def _records(values: Sequence[bytes]) -> list[Record]:
    return [Record(value=value, partition=0) for value in values]


def _reads(received: Sequence[Received]) -> list[Read]:
    return [Read(record.partition, record.offset, record.value or b"") for record in received]


def check_codes(errors: Sequence[Sequence[Any]]) -> None:
    """Each error is a topic, a code and perhaps a message."""
    assert all(error[1] == 0 for error in errors), errors


def rows() -> tuple[Row, ...]:
    """One for each package."""
    return (
        row_of(Librdkafka(), protocols=("classic", "consumer"), may_alternate=True, may_decompress=True),
        row_of(Aiokafka(), may_decompress=True),
        row_of(KafkaPython(), may_alternate=True, may_decompress=True),
    )
