"""Quotas of a whole site through Apache Kafka's own tools: stored where Kafka keeps them, obeyed by
Java clients.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.clients.java_clients import CONFIGS, CONSUMER_PERFORMANCE, PRODUCER_PERFORMANCE, KafkaPrograms
from tests.support.eventually import eventually
from tests.support.sites.site_broker import SiteBroker
from wire.control import controller_pb2 as pb
from wire.rules.client_quotas import entity_message
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import decode_entity_config, encode_config_change, encode_topic_config

pytestmark = pytest.mark.integration

Run = Callable[..., Awaitable[str]]
RATE = 250_000
"""Far less than the slowest machine sends."""


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(zookeeper_connect, tmp_path / "log", quota_window_num="2")
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def configs(site: SiteBroker, kafka_programs: KafkaPrograms) -> Run:
    async def run(*arguments: str) -> str:
        answer = await asyncio.to_thread(kafka_programs.run, CONFIGS, "--bootstrap-server", site.bootstrap, *arguments)
        return answer.decode()

    return run


USER = ("--entity-type", "users", "--entity-name", "alice")
USERS_CLIENT = (*USER, "--entity-type", "clients", "--entity-name", "my app")
ANY_CLIENT = ("--entity-type", "clients", "--entity-default")
ADDRESS = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
SET = (
    (USER, "producer_byte_rate=1024,request_percentage=12.5"),
    (USERS_CLIENT, "consumer_byte_rate=2048"),
    (ANY_CLIENT, "controller_mutation_rate=5"),
    (ADDRESS, "connection_creation_rate=20"),
)


async def _stored(site: SiteBroker, path: str) -> dict[str, str] | None:
    found = await site.zookeeper.get_or_none(path)
    return None if found is None else decode_entity_config(path, found[0])


async def test_kafkas_own_tool_sets_shows_and_removes_every_kind_of_quota(site: SiteBroker, configs: Run) -> None:
    for entity, values in SET:
        await configs("--alter", "--add-config", values, *entity)
    assert await _stored(site, "/config/users/alice") == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    assert await _stored(site, "/config/users/alice/clients/my%20app") == {"consumer_byte_rate": "2048"}
    assert await _stored(site, "/config/clients/<default>") == {"controller_mutation_rate": "5.0"}
    assert await _stored(site, "/config/ips/10.0.0.1") == {"connection_creation_rate": "20"}
    await site.stop()
    await site.start()
    shown = [await configs("--describe", *entity) for entity, _ in SET]
    assert "Quota configs for user-principal 'alice' are" in shown[0]
    for words in ("producer_byte_rate=1024.0", "request_percentage=12.5"):
        assert words in shown[0]
    assert "Quota configs for user-principal 'alice', client-id 'my app' are consumer_byte_rate=2048.0" in shown[1]
    assert "Quota configs for the default client-id are controller_mutation_rate=5.0" in shown[2]
    assert "Quota configs for ip '10.0.0.1' are connection_creation_rate=20.0" in shown[3]
    await configs("--alter", "--delete-config", "producer_byte_rate", *USER)
    for entity, values in SET[1:]:
        await configs("--alter", "--delete-config", values.partition("=")[0], *entity)
    assert await _stored(site, "/config/users/alice") == {"request_percentage": "12.5"}
    for path in ("/config/users/alice/clients/my%20app", "/config/clients/<default>", "/config/ips/10.0.0.1"):
        assert await _stored(site, path) is None


async def test_other_configs_beside_quotas_stay_and_quotas_written_by_hand_are_taken_over(
    site: SiteBroker,
) -> None:
    path = "/config/users/bob"
    await site.zookeeper.create(
        path, encode_topic_config({"SCRAM-SHA-256": "salt", "producer_byte_rate": "7"}), make_path=True
    )
    await site.zookeeper.create(znodes.config_change_path(), encode_config_change("users/bob"), is_sequence=True)
    entity = (("user", "bob"),)
    await eventually(lambda: site.broker.cluster.image.quotas.get(entity) == {"producer_byte_rate": 7.0})
    change = pb.QuotaChange(entity=entity_message(entity), remove=["producer_byte_rate"])
    await site.broker.controller.alter_client_quotas(pb.AlterClientQuotasRequest(changes=[change]))
    assert entity not in site.broker.cluster.image.quotas
    assert json.loads((await site.zookeeper.get(path))[0])["config"] == {"SCRAM-SHA-256": "salt"}


def _metric(printed: str, name: str) -> float:
    """The largest value of a metric that a performance tool printed."""
    return max(float(value) for value in re.findall(rf"{name}:\{{[^}}]*\}}\s*:\s*([0-9.]+)", printed))


@pytest.mark.long
async def test_java_clients_slow_to_their_rate_and_report_throttle_times(
    site: SiteBroker, configs: Run, kafka_programs: KafkaPrograms
) -> None:
    entity = ("--entity-type", "clients", "--entity-name", "slow")
    await configs("--alter", "--add-config", f"producer_byte_rate={RATE},consumer_byte_rate={RATE}", *entity)

    async def produce(client_id: str) -> str:
        found = await asyncio.to_thread(
            kafka_programs.run,
            PRODUCER_PERFORMANCE,
            *(
                "--topic",
                "t",
                "--num-records",
                "1500",
                "--record-size",
                "1000",
                "--throughput",
                "-1",
                "--print-metrics",
            ),
            *("--bootstrap-server", site.bootstrap, "--command-property", f"client.id={client_id}"),
        )
        return found.decode()

    async def consume(client_id: str) -> str:
        found = await asyncio.to_thread(
            kafka_programs.run,
            CONSUMER_PERFORMANCE,
            *("--bootstrap-server", site.bootstrap, "--topic", "t", "--num-records", "1500", "--print-metrics"),
            *("--timeout", "60000", "--command-property", f"client.id={client_id}"),
        )
        return found.decode()

    slow, quick = await produce("slow"), await produce("quick")
    assert _metric(slow, "produce-throttle-time-max") > 0
    assert _metric(quick, "produce-throttle-time-max") == 0
    slow, quick = await consume("slow"), await consume("quick")
    assert _metric(slow, "fetch-throttle-time-max") > 0
    assert _metric(quick, "fetch-throttle-time-max") == 0
