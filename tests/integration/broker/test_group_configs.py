"""Configs of single groups through Apache Kafka's own tool: stored where Kafka keeps them, in force
for the members of the group.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.java_clients import CONFIGS, KafkaPrograms
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually, eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.sites.site_broker import SiteBroker
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import encode_config_change
from wire.znodes.group_configs import decode_group_configs, encode_group_configs, group_config_path

pytestmark = pytest.mark.integration

Run = Callable[..., Awaitable[str]]
CONSUMER_GROUP_HEARTBEAT, ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 68, 44, 74
GROUP_RESOURCE, SET, DELETE = 32, 0, 1
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
GROUP = "ship ping/é"
"""A name that ZooKeeper cannot have as it is."""
ENTITY = ("--entity-type", "groups", "--entity-name", GROUP)
REBALANCE_TIMEOUT = i32Timedelta.parse(timedelta(minutes=1))


def beat(client: RawClient, group: str, member: str, epoch: int) -> Any:
    """Join, or send a heartbeat."""
    values = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "rebalance_timeout": REBALANCE_TIMEOUT,
        "subscribed_topic_names": ("nothing",),
        "topic_partitions": (),
    }
    return client.call(CONSUMER_GROUP_HEARTBEAT, 1, values)


def interval_ms(port: int, group: str) -> float:
    """The coordinator's answer to a joining member; 0 while the group has no coordinator."""
    with RawClient(port) as client:
        client.call(10, 4, {"key_type": 0, "coordinator_keys": [group]})
        answer = beat(client, group, str(uuid.uuid4()), 0)
    if answer.error_code is not ErrorCode.none:
        return 0
    found: float = answer.heartbeat_interval.total_seconds() * 1000
    return found


def alter(client: RawClient, group: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    """IncrementalAlterConfigs."""
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    code: ErrorCode = (
        client.call(ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}).responses[0].error_code
    )
    return code


def listed(client: RawClient) -> list[str]:
    """Groups that have configs."""
    answer = client.call(LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP_RESOURCE]})
    return [resource.resource_name for resource in answer.config_resources]


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(zookeeper_connect, tmp_path / "log")
    await running.start()
    yield running
    await running.stop()


async def test_kafkas_own_tool_sets_shows_and_removes_configs_of_groups(
    site: SiteBroker, kafka_programs: KafkaPrograms
) -> None:
    async def configs(*arguments: str) -> str:
        answer = await asyncio.to_thread(
            kafka_programs.run, CONFIGS, "--bootstrap-server", site.bootstrap, *arguments, *ENTITY
        )
        return answer.decode()

    async def stored() -> dict[str, str] | None:
        found = await site.zookeeper.get_or_none(group_config_path(GROUP))
        return None if found is None else decode_group_configs(GROUP, found[0])

    async def is_answered(wanted_ms: float) -> bool:
        return await asyncio.to_thread(interval_ms, int(site.bootstrap.rpartition(":")[2]), GROUP) == wanted_ms

    await configs("--alter", "--add-config", f"{SESSION}=50000,{INTERVAL}=6000")
    assert await stored() == {SESSION: "50000", INTERVAL: "6000"}
    await eventually(lambda: is_answered(6000))
    await site.stop()
    await site.start()
    described = await configs("--describe")
    assert f"{SESSION}=50000" in described
    assert f"{INTERVAL}=6000" in described
    await eventually(lambda: is_answered(6000))
    await configs("--alter", "--delete-config", INTERVAL)
    assert await stored() == {SESSION: "50000"}
    assert await is_answered(5000)
    await configs("--alter", "--delete-config", SESSION)
    assert await stored() is None


async def test_configs_of_groups_that_were_written_by_hand_are_taken_over(site: SiteBroker) -> None:
    path = group_config_path("billing")
    await site.zookeeper.create(path, encode_group_configs({INTERVAL: "7000"}), make_path=True)
    notice = encode_config_change("groups/billing")
    await site.zookeeper.create(znodes.config_change_path(), notice, is_sequence=True)
    await eventually(lambda: site.broker.cluster.image.group_configs.get("billing") == {INTERVAL: "7000"})


def test_a_groups_session_timeout_is_in_force_for_its_members(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(group_consumer_min_session_timeout_ms="1000", group_consumer_min_heartbeat_interval_ms="100")
    with RawClient(broker.port) as client:
        assert alter(client, "short", (SESSION, SET, "1500"), (INTERVAL, SET, "500")) is ErrorCode.none
        assert alter(client, "short", (SESSION, SET, "999")) is ErrorCode.invalid_config
        assert alter(client, "short", (SESSION, SET, "60001")) is ErrorCode.invalid_config
        assert listed(client) == ["short"]
        eventually_sync(lambda: interval_ms(broker.port, "short") == 500)
        # the member of the first group stops its heartbeats and is removed; the member of the other
        # group has the broker's 45 s
        for group in ("short", "usual"):
            assert beat(client, group, "m", 0).error_code is ErrorCode.none
        eventually_sync(lambda: members(client, "short") == 0)
        assert members(client, "usual") == 1
        assert alter(client, "short", (SESSION, DELETE, None), (INTERVAL, DELETE, None)) is ErrorCode.none
        assert listed(client) == []


def members(client: RawClient, group: str) -> int:
    """The number of the group's members."""
    answer = client.call(69, 1, {"group_ids": [group], "include_authorized_operations": False})
    return len(answer.groups[0].members)
