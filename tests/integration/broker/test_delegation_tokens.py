"""Delegation tokens (KIP-48) at a site of two secured brokers: Kafka's own tool makes, shows,
renews and expires them, Java's and our own clients log in by them, ACLs and owners bound who does
what.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from runtime.addresses import parse_host_port
from runtime.clock import SystemClock
from tests.support.clients.java_clients import DELEGATION_TOKENS, KafkaPrograms
from tests.support.clients.patient_options import patient_options
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.processes.secured_kafka import PLAIN_MODULE, SCRAM_MODULE
from tests.support.sites.site_broker import SiteBroker
from wire.client.client_errors import Unreachable
from wire.client.connection import Connection, connected
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls
from wire.client.security import load_security, secured
from wire.rules.acls import AccessEntry, Acl, Operation, PatternType, Permission, ResourcePattern, ResourceType
from wire.rules.delegation_tokens import DelegationToken, token_hmac, token_password
from wire.rules.principals import Principal
from wire.znodes.token_znodes import TOKEN_CHANGES, encode_token, token_path

pytestmark = pytest.mark.integration

SECRET = "the site's secret of tokens"
PASSWORDS = {"alice": "of alice", "bob": "of bob"}
METADATA, CREATE, RENEW, EXPIRE, DESCRIBE = 3, 38, 39, 40, 41
VERSIONS = {CREATE: 3, RENEW: 2, EXPIRE: 2, DESCRIBE: 3}
EXPIRY_CHECK_MS = 200
FIRST_TOKEN_MS = 6_000
"""Long enough that a client on a busy machine still logs in again before the token expires, and not
within a second after its first login, which brokers refuse.
"""


def properties() -> dict[str, Any]:
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    return {
        "listeners": "CLIENT://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.client.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        **{
            f"listener.name.client.scram-sha-{bits}.sasl.jaas.config": jaas("SCRAM", BROKER, BROKER_PASSWORD)
            for bits in (256, 512)
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{BROKER}",
        "delegation.token.secret.key": SECRET,
        "delegation.token.max.lifetime.ms": "3600000",
        "delegation.token.expiry.time.ms": "600000",
        "delegation.token.expiry.check.interval.ms": str(EXPIRY_CHECK_MS),
    }


@pytest.fixture
async def brokers(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[list[SiteBroker]]:
    made = [SiteBroker(zookeeper_connect, tmp_path / f"b{node}", node_id=node, **properties()) for node in (1, 2)]
    await asyncio.gather(*(broker.start() for broker in made))
    yield made
    for broker in made:
        await broker.stop()


def login(user: str, password: str = "", *, is_token: bool = False) -> dict[str, str]:
    """Client options of a user of PLAIN, of the brokers' own user, or by a token."""
    line = f'{SCRAM_MODULE} required username="{user}" password="{password}" tokenauth="true";'
    mechanism = "SCRAM-SHA-512" if is_token else "SCRAM-SHA-256" if user == BROKER else "PLAIN"
    password = BROKER_PASSWORD if user == BROKER else PASSWORDS.get(user, "")
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": line if is_token else jaas(mechanism, user, password),
    }


def connect(broker: SiteBroker, options: Mapping[str, str]) -> AbstractAsyncContextManager[Connection]:
    found = secured(patient_options(client_id="tokens"), load_security(options))
    return connected(parse_host_port(broker.bootstrap), found)


async def ask(broker: SiteBroker, options: Mapping[str, str], api_key: int, request: dict[str, Any]) -> Any:
    async with connect(broker, options) as connection:
        return await connection.call(api_key, request, version=VERSIONS[api_key])


async def allow(broker: SiteBroker, who: str, operation: Operation, kind: ResourceType, name: str) -> None:
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    options = secured(patient_options(client_id="acls"), load_security(login(BROKER)))
    async with KafkaClient(broker.bootstrap, options=options) as client:
        await create_acls(client, [Acl(pattern, AccessEntry(f"User:{who}", "*", operation, Permission.ALLOW))])


def ms(number: int) -> i64Timedelta:
    return i64Timedelta.parse(timedelta(milliseconds=number))


def creation(owner: str | None = None) -> dict[str, Any]:
    named = {"owner_principal_type": owner and "User", "owner_principal_name": owner}
    return {**named, "renewers": [], "max_lifetime": ms(-1)}


async def test_kafka_s_own_tool_and_clients_use_tokens(
    brokers: list[SiteBroker], kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    first, second = brokers
    file = tmp_path / "alice.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login("alice").items()))

    async def tool(*arguments: str) -> str:
        door = ("--bootstrap-server", first.bootstrap, "--command-config", str(file))
        return (await asyncio.to_thread(kafka_programs.run, DELEGATION_TOKENS, *door, *arguments)).decode()

    made = await tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, token = re.search(r"^(\S{22})\s+(\S{88})\s+User:alice\s", made, re.MULTILINE).groups()  # type: ignore[union-attr]
    stored = json.loads((await first.zookeeper.get(token_path(token_id)))[0])
    assert (stored["owner"], stored["renewers"]) == ("User%3Aalice", ["User%3Abob"])
    assert stored["expiryTimestamp"] - stored["issueTimestamp"] == 600_000
    assert token not in json.dumps(stored)

    await allow(first, "alice", Operation.ALL, ResourceType.TOPIC, "of-alice")
    await allow(first, "alice", Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    by_token = login(token_id, token, is_token=True)
    values = [b"by-token-%d" % number for number in range(5)]
    await asyncio.to_thread(kafka_programs.produce, second.bootstrap, "of-alice", values, settings=by_token)
    asked_by_token = await ask(second, by_token, CREATE, creation())
    assert asked_by_token.error_code is ErrorCode.delegation_token_request_not_allowed
    with pytest.raises(Unreachable, match="invalid credentials"):
        await ask(first, login(token_id, "wrong", is_token=True), DESCRIBE, {"owners": None})

    assert "Completed renew operation" in await tool("--renew", "--renew-time-period", "900000", "--hmac", token)
    renewed = json.loads((await first.zookeeper.get(token_path(token_id)))[0])
    assert stored["expiryTimestamp"] < renewed["expiryTimestamp"] < renewed["maxTimestamp"]
    assert token in await tool("--describe", "--owner-principal", "User:alice")
    assert "Completed expire operation" in await tool("--expire", "--expiry-time-period", "-1", "--hmac", token)
    for broker in brokers:
        with pytest.raises(Unreachable, match="invalid credentials"):
            await ask(broker, by_token, DESCRIBE, {"owners": None})
    assert await first.zookeeper.get_or_none(token_path(token_id)) is None


async def test_owners_renewers_and_acls_decide_who_has_tokens(brokers: list[SiteBroker]) -> None:
    first, second = brokers
    alice, bob, operator = login("alice"), login("bob"), login(BROKER)
    made = await ask(first, alice, CREATE, creation())
    token = {"hmac": made.hmac}
    assert made.error_code is ErrorCode.none
    refused = await ask(second, bob, RENEW, {**token, "renew_period": ms(1000)})
    assert refused.error_code is ErrorCode.delegation_token_owner_mismatch
    unknown = await ask(second, bob, EXPIRE, {"hmac": b"unknown", "expiry_time_period": ms(-1)})
    assert unknown.error_code is ErrorCode.delegation_token_not_found

    async def seen_by_bob() -> list[str]:
        return [one.token_id for one in (await ask(second, bob, DESCRIBE, {"owners": None})).tokens]

    assert await seen_by_bob() == []
    assert (await ask(second, bob, DESCRIBE, {"owners": []})).tokens == ()
    await allow(first, "bob", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
    assert await seen_by_bob() == [made.token_id]

    denied = await ask(first, bob, CREATE, creation("alice"))
    assert denied.error_code is ErrorCode.delegation_token_authorization_failed
    await allow(first, "bob", Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")
    delegated = await ask(first, bob, CREATE, creation("alice"))
    named = (delegated.principal_name, delegated.token_requester_principal_name)
    assert (delegated.error_code, named) == (ErrorCode.none, ("alice", "bob"))
    listed = await ask(second, operator, DESCRIBE, {"owners": [{"principal_type": "User", "principal_name": "alice"}]})
    assert {one.token_id for one in listed.tokens} == {made.token_id, delegated.token_id}


async def test_tokens_expire_and_those_that_another_tool_wrote_count(brokers: list[SiteBroker]) -> None:
    first, second = brokers

    async def logs_in(options: Mapping[str, str]) -> bool:
        try:
            await ask(second, options, DESCRIBE, {"owners": None})
        except Unreachable:
            return False
        return True

    made = await ask(first, login("alice"), CREATE, creation())
    by_token = login(made.token_id, token_password(made.hmac), is_token=True)
    assert await logs_in(by_token)
    shortened = await ask(first, login("alice"), EXPIRE, {"hmac": made.hmac, "expiry_time_period": ms(300)})
    assert shortened.error_code is ErrorCode.none

    async def is_gone() -> bool:
        return not await logs_in(by_token) and await first.zookeeper.get_or_none(token_path(made.token_id)) is None

    await eventually(is_gone)

    alice, now_ms = Principal("User", "alice"), SystemClock().now_ms()
    token = DelegationToken("written-elsewhere", alice, alice, (), now_ms, now_ms + 60_000, now_ms + 60_000)
    await first.zookeeper.create(token_path(token.token_id), encode_token(token))
    await first.zookeeper.create(f"{TOKEN_CHANGES}/token_change_0000000000", token.token_id.encode())
    foreign = login(token.token_id, token_password(token_hmac(SECRET, token.token_id)), is_token=True)
    await eventually(lambda: logs_in(foreign))


async def test_a_client_renews_its_login_by_the_token_that_its_file_has_by_then(
    brokers: list[SiteBroker], tmp_path: Path
) -> None:
    first, second = brokers
    file = tmp_path / "login.properties"

    async def put(lifetime_ms: int) -> None:
        made = await ask(first, login("alice"), CREATE, {**creation(), "max_lifetime": ms(lifetime_ms)})
        incoming = file.with_suffix(".incoming")
        incoming.write_text(f"username={made.token_id}\npassword={token_password(made.hmac)}\ntokenauth=true\n")
        incoming.replace(file)

    await put(FIRST_TOKEN_MS)
    by_file = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "antipode.sasl.login.location": str(file),
    }
    began_ms = SystemClock().monotonic_ms()
    async with connect(second, by_file) as connection:
        await put(600_000)

        async def is_served_by_the_second_token() -> bool:
            await connection.call(METADATA, {"topics": ()}, version=1)
            return SystemClock().monotonic_ms() - began_ms > 1.5 * FIRST_TOKEN_MS

        await eventually(is_served_by_the_second_token)
