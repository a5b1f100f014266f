"""Hosts with limits of their own: given as addresses, or as names that the broker resolves."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from broker.network.connection_limits import HostAddresses
from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from runtime.configuration import ConfigurationError

NO_NAME = "no..name"
"""Not even asked for: a name has no empty part."""


def settings(overrides: str) -> BrokerSettings:
    return load_broker_settings(
        {
            "node.id": "1",
            "listeners": "CLIENT://h:1",
            "log.dirs": "none",
            "zookeeper.connect": "none:1",
            "max.connections.per.ip.overrides": overrides,
        }
    )


async def test_addresses_count_at_once_in_any_spelling() -> None:
    limits = HostAddresses().limits(settings("127.0.0.1:2,[0:0::1]:3,10.0.0.1:4"))
    assert limits.connections_per_address_overrides == {"127.0.0.1": 2, "::1": 3, "10.0.0.1": 4}


async def test_a_name_counts_for_its_addresses_once_it_is_looked_up() -> None:
    hosts, given = HostAddresses(), settings("localhost:2,10.0.0.1:4")
    assert hosts.limits(given).connections_per_address_overrides == {"10.0.0.1": 4}
    await hosts.look_up(given.connections_per_address_overrides)
    found = hosts.limits(given).connections_per_address_overrides
    assert found["10.0.0.1"] == 4
    assert found["127.0.0.1"] == 2


async def test_an_unknown_name_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"max.connections.per.ip.overrides.*no\.\.name.*host:count"):
        await HostAddresses().look_up([NO_NAME])


async def test_while_running_such_a_name_is_logged_and_the_others_count() -> None:
    hosts, given, found = HostAddresses(), settings(f"{NO_NAME}:1,localhost:2"), asyncio.Event()
    with capture_logs() as said:
        hosts.look_up_later(given.connections_per_address_overrides, found.set)
        await asyncio.wait_for(found.wait(), 20)
    assert [line["host"] for line in said] == [NO_NAME]
    assert set(hosts.limits(given).connections_per_address_overrides.values()) == {2}
