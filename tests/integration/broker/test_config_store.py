"""Altered broker configs in a real ZooKeeper: every broker applies them, regardless of the writer,
and no race loses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from broker.settings.config_store import ConfigStoreUnavailable, ZooKeeperConfigStore
from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import decode_config

pytestmark = pytest.mark.integration

Taken = list[tuple[dict[str, str], dict[str, str]]]


@pytest.fixture
async def zookeeper(zookeeper_connect: str) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(zookeeper_connect, session_timeout_ms=30_000)
    await client.start()
    yield client
    await client.stop()


async def follow(zookeeper: ZooKeeper, node_id: int) -> tuple[ZooKeeperConfigStore, Taken]:
    store, taken = ZooKeeperConfigStore(zookeeper, node_id), Taken()

    def take(for_all: Mapping[str, str], for_this: Mapping[str, str]) -> None:
        taken.append((dict(for_all), dict(for_this)))

    await store.follow(take)
    return store, taken


async def test_a_change_for_all_reaches_every_broker_and_one_for_one_broker_that_one(zookeeper: ZooKeeper) -> None:
    first, first_taken = await follow(zookeeper, 1)
    second, second_taken = await follow(zookeeper, 2)
    assert (first_taken[-1], second_taken[-1]) == (({}, {}), ({}, {}))
    await first.change("", lambda stored: {**stored, "log.retention.ms": "5"})
    assert first_taken[-1] == ({"log.retention.ms": "5"}, {})
    await eventually(lambda: second_taken[-1] == ({"log.retention.ms": "5"}, {}))
    await second.change("2", lambda stored: {**stored, "log.roll.ms": "7"})
    assert second_taken[-1] == ({"log.retention.ms": "5"}, {"log.roll.ms": "7"})
    assert first_taken[-1] == ({"log.retention.ms": "5"}, {})
    third, third_taken = await follow(zookeeper, 2)
    assert third_taken == [({"log.retention.ms": "5"}, {"log.roll.ms": "7"})]
    for store in (first, second, third):
        await store.stop()


async def test_changes_made_at_the_same_time_are_all_there(zookeeper: ZooKeeper) -> None:
    stores = [(await follow(zookeeper, node))[0] for node in range(1, 5)]

    async def add(number: int, store: ZooKeeperConfigStore) -> None:
        for step in range(5):
            await store.change("", lambda stored, name=f"k{number}.{step}": {**stored, name: "x"})  # type: ignore[misc]

    await asyncio.gather(*(add(number, store) for number, store in enumerate(stores)))
    stored, _ = await zookeeper.get(znodes.broker_config_path(""))
    assert len(decode_config("", stored)) == 20
    for store in stores:
        await store.stop()


async def test_manual_changes_are_applied_and_malformed_ones_are_left_out(zookeeper: ZooKeeper) -> None:
    store, taken = await follow(zookeeper, 1)
    path = znodes.broker_config_path("1")
    await zookeeper.create(path, b'{"version":1,"config":{"log.retention.ms":"9"}}')
    await eventually(lambda: taken[-1] == ({}, {"log.retention.ms": "9"}))
    await zookeeper.set(path, b"rubbish")
    await eventually(lambda: taken[-1] == ({}, {}))
    await zookeeper.delete(path)
    await eventually(lambda: len(taken) >= 4)
    await store.change("1", lambda stored: {**stored, "log.roll.ms": "1"})
    assert taken[-1] == ({}, {"log.roll.ms": "1"})
    await store.stop()


async def test_a_change_that_is_refused_leaves_what_is_stored(zookeeper: ZooKeeper) -> None:
    store, taken = await follow(zookeeper, 1)

    def refuse(_: Mapping[str, str]) -> dict[str, str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.change("1", refuse)
    assert taken == [({}, {})]
    await zookeeper.stop()
    with pytest.raises(ConfigStoreUnavailable):
        await store.change("1", dict)
    await store.stop()
