"""Clients that log in, and their ACLs, through a planned failover and the way back: logins and ACLs
of one site are valid at the other one, without a change at any client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.pairs.full_sites import LINK, FullSite, LinkedSites
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.acl_requests import create_acls, describe_acls
from wire.rules.acls import (
    AccessEntry,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PATIENT_MS = 120_000
PLANNED = FailoverPolicy(unavailability_max_ms=30_000, drain_timeout_ms=60_000)
SECURED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,LINK:PLAINTEXT",
    "inter.broker.listener.name": "LINK",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.client.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256", BROKER, BROKER_PASSWORD),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Mirrors, brokers and the test's administration use LINK."""


@pytest.fixture
async def sites(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> AsyncIterator[LinkedSites]:
    given = {"a": SECURED, "b": SECURED}
    pair = await asyncio.to_thread(LinkedSites, processes, tmp_path, zookeeper_connect, properties=given)
    yield pair
    await pair.channels.close()


def writer(user: str) -> Acl:
    pattern = ResourcePattern(ResourceType.TOPIC, "fli", PatternType.PREFIXED)
    return Acl(pattern, AccessEntry(f"User:{user}", "127.0.0.1", Operation.WRITE, Permission.ALLOW))


def add_user(site: FullSite, user: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, info, f"{user}'s".encode())
    admin = AdminClient({"bootstrap.servers": site.link})
    for outcome in admin.alter_user_scram_credentials([change]).values():
        outcome.result(120)


async def produce(site: FullSite, user: str) -> None:
    settings = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": f"{user}'s",
        "acks": "all",
    }
    await asyncio.to_thread(librdkafka_produce, site.bootstrap, "flights", [Record(b"one")], settings=settings)


async def has(site: FullSite, *acls: Acl) -> bool:
    async with KafkaClient(site.link, site_local=True) as client:
        return await describe_acls(client, AclFilter()) == set(acls)


async def test_users_and_acls_hold_at_the_other_site_after_a_failover_and_back(sites: LinkedSites) -> None:
    a, b = sites.a, sites.b
    await sites.link()
    async with KafkaClient(a.link) as admin:
        await admin.create_topics([NewTopic(name="flights", partition_count=1)])
        await create_acls(admin, [writer("alice")])
    for user in ("alice", "bob"):
        await asyncio.to_thread(add_user, a, user)
    for name in ("a", "b"):
        sites.start_mirror(into=name, settings={"acl.sync.interval.ms": "100"})
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    await produce(a, "alice")
    with pytest.raises(Exception, match=r"(?i)authorization"):
        await produce(a, "bob")
    await eventually(lambda: has(b, writer("alice")), PATIENT_MS)

    assert (await failover(LINK, to_site="b", agents=sites.agents, policy=PLANNED)).is_done
    await eventually(lambda: sites.is_writable("b"), PATIENT_MS)
    await produce(b, "alice")
    with pytest.raises(Exception, match=r"(?i)authorization"):
        await produce(b, "bob")
    async with KafkaClient(b.link, site_local=True) as admin:
        await create_acls(admin, [writer("bob")])
    await eventually(lambda: has(a, writer("alice"), writer("bob")), PATIENT_MS)

    assert (await failover(LINK, to_site="a", agents=sites.agents, policy=PLANNED)).is_done
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    for user in ("alice", "bob"):
        await produce(a, user)
