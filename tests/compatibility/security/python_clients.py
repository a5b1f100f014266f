"""The Python packages of the security matrix, each with a bound of its own for a login that is
refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from tests.compatibility import python_clients
from tests.compatibility.security.credentials import Credentials
from tests.compatibility.security.secured_client import GROUP, REFUSED_WITHIN_S, WITHIN_S
from tests.support.clients.kafka_clients import sockets_left_open


class Librdkafka(python_clients.Librdkafka):
    """confluent-kafka, with a callback that gives a token."""

    def options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        """With the errors of a login as exceptions."""

        def refuse(error: object) -> None:
            if "_AUTHENTICATION" in repr(error) or "SSL" in repr(error):
                raise AssertionError(str(error))

        found: dict[str, object] = {
            "bootstrap.servers": servers,
            "error_cb": refuse,
            "log_level": 0,
            **credentials.librdkafka(),
        }
        if credentials.token is not None:
            found["oauth_cb"] = lambda _: (credentials.token_text(), time.time() + 300)
        return found

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        from confluent_kafka import Producer

        failed: list[str] = []
        options = {**self.options(servers, credentials), "message.timeout.ms": 1000 * WITHIN_S // 2}
        producer = Producer(options)
        for value in values:
            producer.produce(
                topic, value, partition=0, on_delivery=lambda error, _: failed.append(error.str()) if error else None
            )
        left = producer.flush(WITHIN_S)
        assert not failed and not left, failed[0] if failed else "not acknowledged in time"  # noqa: PT018

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        """In one transaction."""
        from confluent_kafka import Producer

        producer = Producer({**self.options(servers, credentials), "transactional.id": identity})
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(WITHIN_S)

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        """With one partition."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        options: Any = self.options(servers, credentials)
        admin = AdminClient(options)
        admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)

    def consume(  # type: ignore[override]
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        from confluent_kafka import Consumer

        options = {**self.options(servers, credentials), "group.id": group, "auto.offset.reset": "earliest"}
        found: list[bytes] = []
        with closing(Consumer(options)) as consumer:
            consumer.subscribe([topic])
            deadline_s = time.monotonic() + WITHIN_S
            while len(found) < count and time.monotonic() < deadline_s:
                for message in consumer.consume(count, 1):
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
        return found


class Aiokafka(python_clients.Aiokafka):
    """aiokafka, with a provider of tokens."""

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        asyncio.run(self._produce(servers, topic, values, credentials))

    def consume(  # type: ignore[override]
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        return asyncio.run(self._consume(servers, topic, count, credentials, group))

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        """In one transaction."""
        asyncio.run(self._commit(servers, topic, identity, values, credentials))

    async def _commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        from aiokafka import AIOKafkaProducer

        async with asyncio.timeout(WITHIN_S):
            producer = AIOKafkaProducer(**self._options(servers, credentials), transactional_id=identity)
            try:
                await producer.start()
                async with producer.transaction():
                    for value in values:
                        await producer.send_and_wait(topic, value, partition=0)
            finally:
                await producer.stop()

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        """With one partition."""
        asyncio.run(self._make_topic(servers, topic, credentials))

    async def _make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async with asyncio.timeout(WITHIN_S):
            admin = AIOKafkaAdminClient(**self._options(servers, credentials))
            await admin.start()
            try:
                python_clients.check_codes((await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors)
            finally:
                await admin.close()

    def _options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return credentials.token_text()

        found: dict[str, object] = {"bootstrap_servers": servers, **credentials.python()}
        if credentials.token is not None:
            found["sasl_oauth_token_provider"] = Provider()
        return found

    async def _produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        from aiokafka import AIOKafkaProducer

        async with asyncio.timeout(WITHIN_S):
            producer = AIOKafkaProducer(**self._options(servers, credentials))
            try:
                await producer.start()
                for value in values:
                    await producer.send_and_wait(topic, value, partition=0)
            finally:
                await producer.stop()

    async def _consume(self, servers: str, topic: str, count: int, credentials: Credentials, group: str) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer

        options = self._options(servers, credentials)
        consumer = AIOKafkaConsumer(topic, **options, group_id=group, auto_offset_reset="earliest")
        async with asyncio.timeout(WITHIN_S):
            try:
                await consumer.start()
                return [(await consumer.getone()).value for _ in range(count)]
            finally:
                await consumer.stop()


class KafkaPython(python_clients.KafkaPython):
    """kafka-python, with a provider of tokens."""

    def _options(self, servers: str, credentials: Credentials) -> dict[str, object]:
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return credentials.token_text()

        # a refused login is no error for it: it tries again until its bootstrap has taken this long
        bounds = {"bootstrap_timeout_ms": 1000 * REFUSED_WITHIN_S}
        found: dict[str, object] = {"bootstrap_servers": servers, **bounds, **credentials.python()}
        if credentials.token is not None:
            found["sasl_oauth_token_provider"] = Provider()
        return found

    def produce(  # type: ignore[override]
        self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        from kafka import KafkaProducer

        with sockets_left_open():
            producer = KafkaProducer(**self._options(servers, credentials), max_block_ms=1000 * WITHIN_S // 2)
            try:
                for future in [producer.send(topic, value, partition=0) for value in values]:
                    future.get(timeout=WITHIN_S)
            finally:
                producer.close(timeout=1)

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        """In one transaction."""
        from kafka import KafkaProducer

        with sockets_left_open():
            producer = KafkaProducer(
                **self._options(servers, credentials),
                transactional_id=identity,
                max_block_ms=1000 * WITHIN_S // 2,
            )
            try:
                producer.init_transactions()
                producer.begin_transaction()
                for future in [producer.send(topic, value, partition=0) for value in values]:
                    future.get(timeout=WITHIN_S)
                producer.commit_transaction()
            finally:
                producer.close(timeout=1)

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        """With one partition."""
        from kafka.admin import KafkaAdminClient, NewTopic

        with sockets_left_open(), closing(KafkaAdminClient(**self._options(servers, credentials))) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])

    def consume(  # type: ignore[override]
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        from kafka import KafkaConsumer

        with sockets_left_open():
            options = self._options(servers, credentials)
            wait = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 1000 * WITHIN_S}
            consumer = KafkaConsumer(topic, **options, **wait, group_id=group)
            try:
                return [record.value for _, record in zip(range(count), consumer, strict=False)]
            finally:
                consumer.close()
