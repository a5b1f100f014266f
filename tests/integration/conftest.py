"""Fixtures that integration tests of several files share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.support.pairs.full_sites import LinkedSites
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import create_topic
from tests.support.pairs.translate_transactions import PARTITIONS, MakeLink, TransactionalLink
from tests.support.processes.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes.processes import Processes


@pytest.fixture(scope="session")
def kafka_b(
    apache_kafka: ApacheKafka, session_processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> ApacheKafka:
    """A second Apache Kafka; the first one says whether there are any."""
    return start_apache_kafka(session_processes, tmp_path_factory.mktemp("kafka-b"))


@pytest.fixture
def transactional_link(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> MakeLink:
    """Makes links from Apache Kafka whose mirrors write in transactions."""

    async def make(
        topic: str,
        *,
        is_antipode: bool = False,
        target: str = "",
        partitions: int = PARTITIONS,
        settings: Mapping[str, str] | None = None,
    ) -> TransactionalLink:
        source = apache_kafka.bootstrap_servers
        if is_antipode:
            target = (await start_lone_site(processes, tmp_path, "site")).bootstrap
        await create_topic(source, topic, partitions)
        there = target or kafka_b.bootstrap_servers
        return TransactionalLink(processes, tmp_path, source, there, topic, partitions, settings or {})

    return make


@pytest.fixture
async def sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    """Two sites that can be linked."""
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect)
    yield pair
    await pair.channels.close()
