"""Clients that log in, by passwords and by delegation tokens, and their ACLs, through a planned
failover and the way back: logins and ACLs of one site are valid at the other one, without a change
at any client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from runtime.addresses import parse_host_port
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.patient_options import patient_options
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.pairs.full_sites import LINK, FullSite, LinkedSites
from tests.support.processes.processes import Processes
from wire.client.client_errors import Unreachable
from wire.client.connection import Connection, connected
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.acl_requests import create_acls, describe_acls
from wire.client.security import ClientSecurity, load_security, secured
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
from wire.rules.delegation_tokens import token_password

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PATIENT_MS = 120_000
CREATE_TOKEN = 38
PLANNED = FailoverPolicy(unavailability_max_ms=30_000, drain_timeout_ms=60_000)
SECURED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,LINK:PLAINTEXT",
    "inter.broker.listener.name": "LINK",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.client.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256", BROKER, BROKER_PASSWORD),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "of both sites",
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


def alice(site: FullSite, login: ClientSecurity) -> AbstractAsyncContextManager[Connection]:
    """A connection of other software than Antipode's."""
    options = secured(patient_options(client_id="alice", software_name="another-client"), login)
    return connected(parse_host_port(site.bootstrap), options)


def password_login(user: str) -> ClientSecurity:
    return login_of(f'username="{user}" password="{user}\'s"')


def login_of(options: str) -> ClientSecurity:
    line = f"org.apache.kafka.common.security.scram.ScramLoginModule required {options};"
    return load_security(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    )


async def new_token(site: FullSite) -> ClientSecurity:
    """A delegation token of alice, which she asks a broker of the site for."""
    async with alice(site, password_login("alice")) as connection:
        made = await connection.call(
            CREATE_TOKEN,
            {
                "owner_principal_type": None,
                "owner_principal_name": None,
                "renewers": [],
                "max_lifetime": i64Timedelta.parse(timedelta(hours=1)),
            },
            version=3,
        )
    assert (made.error_code, made.principal_name) == (ErrorCode.none, "alice")
    return login_of(f'username="{made.token_id}" password="{token_password(made.hmac)}" tokenauth="true"')


async def logs_in(site: FullSite, login: ClientSecurity) -> bool:
    try:
        async with alice(site, login):
            return True
    except Unreachable as error:
        assert "invalid credentials" in str(error)  # noqa: PT017  any other failure is one of the test
        return False


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
    # a round of the mirror carries users after ACLs
    await eventually(partial(logs_in, b, password_login("alice")), PATIENT_MS)
    # the standby hands the second request on: both tokens are the active site's
    tokens = [await new_token(a), await new_token(b)]
    for token in tokens:
        assert await logs_in(a, token)
        await eventually(partial(logs_in, b, token), PATIENT_MS)

    assert (await failover(LINK, to_site="b", agents=sites.agents, policy=PLANNED)).is_done
    await eventually(lambda: sites.is_writable("b"), PATIENT_MS)
    await produce(b, "alice")
    with pytest.raises(Exception, match=r"(?i)authorization"):
        await produce(b, "bob")
    async with KafkaClient(b.link, site_local=True) as admin:
        await create_acls(admin, [writer("bob")])
    assert [await logs_in(b, token) for token in tokens] == [True, True]
    token_of_b = await new_token(b)
    await eventually(lambda: has(a, writer("alice"), writer("bob")), PATIENT_MS)

    assert (await failover(LINK, to_site="a", agents=sites.agents, policy=PLANNED)).is_done
    await eventually(lambda: sites.is_writable("a"), PATIENT_MS)
    for user in ("alice", "bob"):
        await produce(a, user)
    tokens.append(token_of_b)
    await eventually(partial(logs_in, a, token_of_b), PATIENT_MS)
    assert [await logs_in(site, token) for site in (a, b) for token in tokens] == [True] * 6
