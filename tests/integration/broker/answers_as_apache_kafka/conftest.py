"""Fixture: this broker and a real Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.lone_brokers.two_brokers import Side
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.sites.site_broker import SiteBroker


@pytest.fixture
async def sides(apache_kafka: ApacheKafka, zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[list[Side]]:
    """This broker, and the other one."""
    running = SiteBroker(zookeeper_connect, tmp_path / "log")
    await running.start()
    found = [Side(running.bootstrap), Side(apache_kafka.bootstrap_servers)]
    yield found
    await asyncio.to_thread(found[1].remove_topics)
    await running.stop()
