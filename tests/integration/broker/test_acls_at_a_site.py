"""ACLs of a whole site through other people's tools: stored where Kafka keeps them, shown and
removed again, taken over where another tool wrote them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as librdkafka
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
)
from kafka.admin import ResourcePattern as KafkaPythonPattern
from kafka.admin import ResourceType as KafkaPythonType

from tests.support.clients.java_clients import ACLS, KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.secured_kafka import PLAIN_MODULE
from tests.support.sites.site_broker import SiteBroker
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.acl_requests import create_acls, delete_acls, describe_acls, exactly
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
from wire.znodes.acl_znodes import ACL_CHANGES, DENY_ALL, acl_path, encode_acls

pytestmark = pytest.mark.integration

Run = Callable[..., Awaitable[str]]
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(
        zookeeper_connect,
        tmp_path / "log",
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS",
    )
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def kafka_acls(site: SiteBroker, kafka_programs: KafkaPrograms) -> Run:
    async def run(*arguments: str) -> str:
        answer = await asyncio.to_thread(kafka_programs.run, ACLS, "--bootstrap-server", site.bootstrap, *arguments)
        return answer.decode()

    return run


def acl(
    name: str, operation: Operation = Operation.READ, pattern: PatternType = PatternType.LITERAL, who: str = "alice"
) -> Acl:
    resources = ResourcePattern(ResourceType.TOPIC, name, pattern)
    return Acl(resources, AccessEntry(f"User:{who}", "*", operation, Permission.ALLOW))


async def stored(site: SiteBroker, pattern: ResourcePattern) -> object:
    found = await site.zookeeper.get_or_none(acl_path(pattern))
    return None if found is None else json.loads(found[0])


async def test_kafkas_own_tool_adds_lists_and_removes_acls(site: SiteBroker, kafka_acls: Run) -> None:
    added = await kafka_acls(
        "--add",
        "--allow-principal",
        "User:alice",
        "--consumer",
        "--topic",
        "or",
        "--group",
        "*",
        "--resource-pattern-type",
        "prefixed",
    )
    assert "Adding ACLs" in added
    await kafka_acls(
        "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.9", "--operation", "Write", "--topic", "orders"
    )
    await kafka_acls("--add", "--allow-principal", "User:alice", "--operation", "IdempotentWrite", "--cluster")
    orders = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    assert acl_path(orders) == "/kafka-acl/Topic/orders"
    entry = {"principal": "User:bob", "permissionType": "Deny", "operation": "Write", "host": "10.0.0.9"}
    assert await stored(site, orders) == {"version": 1, "acls": [entry]}
    prefixed = ResourcePattern(ResourceType.TOPIC, "or", PatternType.PREFIXED)
    assert acl_path(prefixed) == "/kafka-acl-extended/prefixed/Topic/or"
    listed = await kafka_acls("--list")
    assert "name=kafka-cluster, patternType=LITERAL" in listed
    assert "(principal=User:bob, host=10.0.0.9, operation=WRITE, permissionType=DENY)" in listed
    concerning = await kafka_acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "name=or, patternType=PREFIXED" in concerning
    assert "CLUSTER" not in concerning
    for removal in (
        ("--topic", "or", "--resource-pattern-type", "prefixed"),
        ("--topic", "orders"),
        ("--cluster",),
        ("--group", "*", "--resource-pattern-type", "prefixed"),
    ):
        await kafka_acls("--remove", "--force", *removal)
    assert "patternType" not in await kafka_acls("--list")
    assert await stored(site, prefixed) is None


@pytest.mark.long
async def test_our_command_adds_lists_and_removes_acls(site: SiteBroker) -> None:
    async def run(*arguments: str, code: int = 0) -> Any:
        options = ("--bootstrap-server", site.bootstrap, "--output", "json")
        done = await asyncio.to_thread(run_antipode, "acls", *arguments, *options)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    producer = (
        "add",
        "--allow-principal",
        "User:alice",
        "--producer",
        "--topic",
        "or",
        "--resource-pattern-type",
        "prefixed",
    )
    assert len(await run(*producer, "--dry-run")) == 3
    assert await run("list") == []
    added = await run(*producer)
    assert {row["operation"] for row in added} == {"Write", "Describe", "Create"}
    assert await run(*producer) == [], "they are there"
    assert await run("list", "--topic", "orders", "--resource-pattern-type", "match") == added
    assert await run("list", "--principal", "User:bob") == []
    chosen = ("remove", "--topic", "or", "--resource-pattern-type", "prefixed", "--operation", "Write")
    (removed,) = await run(*chosen)
    assert removed["operation"] == "Write"
    assert len(await run("list")) == 2
    assert "accepted: All, Read" in await run(
        "add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Fly", code=2
    )


async def test_librdkafka_and_kafka_python_manage_acls(site: SiteBroker) -> None:
    client = librdkafka.AdminClient({"bootstrap.servers": site.bootstrap})
    binding = librdkafka.AclBinding(
        librdkafka.ResourceType.TOPIC,
        "rd",
        librdkafka.ResourcePatternType.PREFIXED,
        "User:rd",
        "*",
        librdkafka.AclOperation.WRITE,
        librdkafka.AclPermissionType.ALLOW,
    )
    chosen = librdkafka.AclBindingFilter(
        librdkafka.ResourceType.ANY,
        None,
        librdkafka.ResourcePatternType.ANY,
        "User:rd",
        None,
        librdkafka.AclOperation.ANY,
        librdkafka.AclPermissionType.ANY,
    )

    def with_librdkafka() -> tuple[list[librdkafka.AclBinding], list[librdkafka.AclBinding]]:
        client.create_acls([binding])[binding].result(120)
        found = client.describe_acls(chosen).result(120)
        return found, client.delete_acls([chosen])[chosen].result(120)

    assert await asyncio.to_thread(with_librdkafka) == ([binding], [binding])

    def with_kafka_python() -> tuple[int, int]:
        admin = KafkaAdminClient(bootstrap_servers=site.bootstrap)
        wanted = ACL(
            "User:kp", "*", ACLOperation.READ, ACLPermissionType.ALLOW, KafkaPythonPattern(KafkaPythonType.GROUP, "kp")
        )
        try:
            assert not admin.create_acls([wanted])["failed"]
            every = ACLFilter(
                "User:kp",
                "*",
                ACLOperation.ANY,
                ACLPermissionType.ANY,
                ResourcePatternFilter(KafkaPythonType.ANY, None, ACLResourcePatternType.ANY),
            )
            found, _ = admin.describe_acls(every)
            ((_, removed, _),) = admin.delete_acls([every])
            return len(found), len(removed)
        finally:
            admin.close()

    assert await asyncio.to_thread(with_kafka_python) == (1, 1)


async def test_acls_that_another_tool_writes_to_zookeeper_are_taken_over(site: SiteBroker) -> None:
    first, second = acl("written"), acl("written", Operation.WRITE)
    async with KafkaClient(site.bootstrap) as client:

        async def are(*acls: Acl) -> bool:
            return await describe_acls(client, AclFilter(ResourceType.TOPIC, "written")) == set(acls)

        await create_acls(client, [first])
        assert await are(first)
        await site.zookeeper.set(acl_path(first.pattern), encode_acls([first.entry, second.entry]))
        await site.zookeeper.create(f"{ACL_CHANGES}/acl_changes_0000000001", b"Topic:written")
        await eventually(lambda: are(first, second))

        async def are_change_notices_gone() -> bool:
            return await site.zookeeper.children(ACL_CHANGES) == []

        await eventually(are_change_notices_gone)
        # the znode may have had a DENY: a wrong byte in it must not allow anything
        await site.zookeeper.set(acl_path(first.pattern), b"{")
        await site.zookeeper.create(f"{ACL_CHANGES}/acl_changes_0000000002", b"Topic:written")
        await eventually(lambda: are(Acl(first.pattern, DENY_ALL)))
        assert await delete_acls(client, [exactly(Acl(first.pattern, DENY_ALL))])
        assert await are()


async def test_real_clients_that_log_in_may_do_what_their_acls_say(zookeeper_connect: str, tmp_path: Path) -> None:
    users = f'{PLAIN_MODULE} required user_alice="secret" user_bob="secret";'
    site = SiteBroker(
        zookeeper_connect,
        tmp_path / "log",
        **{
            "listeners": "CLIENT://127.0.0.1:0,LOGIN://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": users,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        },
    )
    await site.start()
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.password": "secret"}
    at = f"127.0.0.1:{site.broker.ports['LOGIN']}"
    records = [Record(b"one"), Record(b"two")]

    async def produce(user: str) -> None:
        await asyncio.to_thread(
            librdkafka_produce,
            at,
            "orders",
            records,
            settings={**login, "sasl.username": user, "message.timeout.ms": "20000"},
        )

    try:
        async with KafkaClient(site.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="orders")])
            with pytest.raises(Exception, match=r"(?i)authorization"):
                await produce("alice")
            await create_acls(admin, [acl("orders", Operation.WRITE)])
            await produce("alice")
            with pytest.raises(Exception, match=r"(?i)authorization"):
                await produce("bob")
            group = ResourcePattern(ResourceType.GROUP, "readers", PatternType.LITERAL)
            entry = AccessEntry("User:bob", "127.0.0.1", Operation.READ, Permission.ALLOW)
            await create_acls(admin, [acl("orders", who="bob"), Acl(group, entry)])
            got = await asyncio.to_thread(
                librdkafka_consume, at, "orders", 2, group="readers", settings={**login, "sasl.username": "bob"}
            )
            assert [record.value for record in got] == [b"one", b"two"]
    finally:
        await site.stop()


async def test_an_acl_that_cannot_be_is_refused_with_the_reason(site: SiteBroker) -> None:
    async with KafkaClient(site.bootstrap) as client:
        for refused, reason in (
            (acl(""), "Invalid empty resource name"),
            (acl("x", Operation.ANY), "Operation must not be ANY"),
            (acl("x", pattern=PatternType.MATCH), "PatternType must not be ANY or MATCH"),
            (acl("x", who=""), "is not a principal"),
        ):
            with pytest.raises(BrokerError, match=reason):
                await create_acls(client, [refused])


async def test_a_broker_without_an_authorizer_has_no_acls(zookeeper_connect: str, tmp_path: Path) -> None:
    broker = SiteBroker(zookeeper_connect, tmp_path / "log")
    await broker.start()
    try:
        async with KafkaClient(broker.bootstrap) as client:
            with pytest.raises(BrokerError, match="No Authorizer is configured"):
                await describe_acls(client, AclFilter())
    finally:
        await broker.stop()
