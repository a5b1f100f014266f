"""Translate links to an Apache Kafka that demands TLS, a client's certificate and a login: both
ends of the mirror over such a listener.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.clients.java_clients import API_VERSIONS, KafkaPrograms
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.translate_links import (
    ROOT,
    create_topic,
    produce_batches,
    start_translate_mirror,
    total_end,
    wait_equal,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import (
    GUEST,
    KEY_PASSWORD,
    PASSWORD,
    SCRAM_MODULE,
    STORE_PASSWORD,
    USER,
    SecuredKafka,
    make_client_stores,
    start_secured_kafka,
)
from wire.client.raw_client import KafkaClient
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

pytestmark = [pytest.mark.integration, pytest.mark.java]


def allowing(topic: str, user: str, operation: Operation) -> Acl:
    """The ACL that lets a user do something with one topic, from anywhere."""
    pattern = ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL)
    return Acl(pattern, AccessEntry(f"User:{user}", "*", operation, Permission.ALLOW))


@pytest.fixture(scope="module")
def secured(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> SecuredKafka:
    return start_secured_kafka(session_processes, tmp_path_factory.mktemp("secured") / "kafka")


@pytest.mark.parametrize(
    ("at_source", "at_target"), [("SCRAM-SHA-512", "PLAIN"), ("PLAIN", "SCRAM-SHA-256")], ids=["scram", "plain"]
)
async def test_a_mirror_logs_in_over_tls_at_both_ends(
    secured: SecuredKafka, processes: Processes, tmp_path: Path, at_source: str, at_target: str
) -> None:
    topic = f"secured-{at_source.lower()}"
    await create_topic(secured.plain, topic, 2)
    await produce_batches(secured.plain, topic, 0, 0, 20)
    settings = {
        "whitelist": topic,
        "link.name": topic,
        **secured.client("source", mechanism=at_source),
        **secured.client("target", mechanism=at_target),
    }
    start_translate_mirror(processes, tmp_path, "mirror", secured.secured, secured.secured, settings)
    await wait_until_copied(secured, topic)
    await produce_batches(secured.plain, topic, 1, 20, 20, size=30_000)  # answers of megabytes
    await wait_until_copied(secured, topic)


async def test_a_mirror_maker_file_with_java_key_stores_runs_as_it_is(
    secured: SecuredKafka, processes: Processes, tmp_path: Path, kafka_programs: KafkaPrograms
) -> None:
    """A client of Java's accepts the same options."""
    await create_topic(secured.plain, "java-stores", 1)
    await produce_batches(secured.plain, "java-stores", 0, 0, 5)
    stores = await asyncio.to_thread(make_client_stores, secured.certificates)
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"store={STORE_PASSWORD}\nkey={KEY_PASSWORD}\nlogin={PASSWORD}\n", encoding="utf-8")
    login = f'{SCRAM_MODULE} required username="{USER}" password="${{file:{secrets}:login}}";'
    of_all = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login,
        "ssl.truststore.location": str(stores.trust),
        "ssl.truststore.password": f"${{file:{secrets}:store}}",
    }
    of_east = {
        "ssl.keystore.location": str(stores.jks),
        "ssl.keystore.password": f"${{file:{secrets}:store}}",
        "ssl.key.password": f"${{file:{secrets}:key}}",
    }
    of_west = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(stores.pkcs12),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    given = {
        "clusters": "east, west",
        "east.bootstrap.servers": secured.secured,
        "west.bootstrap.servers": secured.secured,
        "east->west.enabled": "true",
        "east->west.topics": "java-stores",
        "replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        **of_all,
        **{f"east.{key}": value for key, value in of_east.items()},
        **{f"west.{key}": value for key, value in of_west.items()},
    }
    file = written(tmp_path / "connect-mirror-maker.properties", given)
    command = [sys.executable, "-m", "cli.main", "mirror", "--config", str(file)]
    mirror = processes.run_command("antipode", command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    await wait_equal(secured.plain, secured.plain, "java-stores", target_topic="east.java-stores")
    said = mirror.log_text()
    for key in (*of_east, "ssl.keystore.type"):
        assert f".{key}: used" in said
    assert not [secret for secret in (STORE_PASSWORD, KEY_PASSWORD, PASSWORD) if secret in said]
    mirror.stop()
    client = written(tmp_path / "client.properties", of_all | of_east)
    arguments = ("--bootstrap-server", secured.secured, "--command-config", str(client))
    # The program gives each request 5 s, which a busy machine may need for its first connection.
    listed = await eventually(lambda: asyncio.to_thread(kafka_programs.run, API_VERSIONS, *arguments))
    assert b"Produce(0)" in listed


def written(file: Path, properties: dict[str, str]) -> Path:
    """A properties file."""
    file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()), encoding="utf-8")
    return file


async def test_a_wrong_password_is_said_and_nothing_is_mirrored(
    secured: SecuredKafka, processes: Processes, tmp_path: Path
) -> None:
    await create_topic(secured.plain, "wrong", 1)
    settings = {
        "whitelist": "wrong",
        "link.name": "wrong",
        **secured.client("source", mechanism="SCRAM-SHA-256", password="x"),
    }
    mirror = start_translate_mirror(processes, tmp_path, "mirror", secured.secured, secured.plain, settings)
    await eventually(lambda: "login refused" in mirror.log_text())
    assert await total_end(secured.plain, "a.wrong", 1) == 0


async def wait_until_copied(secured: SecuredKafka, topic: str) -> None:
    await wait_equal(secured.plain, secured.plain, topic, 2)


async def test_acls_of_the_source_are_followed_and_those_of_the_target_left_alone(
    secured: SecuredKafka, processes: Processes, tmp_path: Path
) -> None:
    await create_topic(secured.plain, "guarded", 1)
    reader = allowing("guarded", "reader", Operation.READ)
    writer = allowing("guarded", "writer", Operation.WRITE)
    copied, made_there = (
        allowing("a.guarded", "reader", Operation.READ),
        allowing("a.guarded", "writer", Operation.WRITE),
    )
    async with KafkaClient(secured.plain) as client:

        async def at_target() -> set[Acl]:
            return await describe_acls(client, AclFilter(ResourceType.TOPIC, "a.guarded"))

        async def has(*acls: Acl) -> bool:
            return await at_target() == set(acls)

        await create_acls(client, [reader, writer, made_there])
        settings = {"whitelist": "guarded", "sync.topic.acls.enabled": "true", "acl.sync.interval.ms": "200"}
        start_translate_mirror(processes, tmp_path, "mirror", secured.plain, secured.plain, settings)
        await eventually(lambda: has(copied, made_there))
        await delete_acls(client, [exactly(reader)])
        await eventually(lambda: has(made_there))


async def test_a_topic_whose_rights_were_withdrawn_is_not_taken_for_deleted_and_goes_on_when_they_are_back(
    secured: SecuredKafka, apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    """The source then answers as if the topic did not exist; only a request by name gets the
    reason.
    """
    target = apache_kafka.bootstrap_servers
    await create_topic(secured.plain, "withdrawn", 1)
    await produce_batches(secured.plain, "withdrawn", 0, 0, 20)
    rights = [
        allowing("withdrawn", GUEST, operation)
        for operation in (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    ]
    settings = {
        "whitelist": "withdrawn",
        "link.name": "withdrawn",
        "emit.heartbeats.enabled": "false",
        **secured.guest("source"),
    }
    async with KafkaClient(secured.plain) as client:
        await create_acls(client, rights)
        mirror = start_translate_mirror(processes, tmp_path, "mirror", secured.secured, target, settings)
        await wait_equal(secured.plain, target, "withdrawn")

        async def is_in(state: str, *said: str) -> bool:
            partitions = (await describe_mirror(mirror)).partitions
            assert [partition.state for partition in partitions] == [state], partitions
            (partition,) = partitions
            assert not [part for part in said if part not in partition.reason], partition
            return True

        hidden = ("topic_authorization_failed", "the mirror does not know whether it still exists", "keeps its copy")
        await delete_acls(client, [exactly(acl) for acl in rights])
        await eventually(lambda: is_in("SOURCE_UNAVAILABLE", *hidden))
        mirror.kill()
        mirror.start()
        await eventually(lambda: is_in("SOURCE_UNAVAILABLE", *hidden))
        assert await total_end(target, "a.withdrawn", 1) > 0
        await produce_batches(secured.plain, "withdrawn", 0, 20, 20)
        await create_acls(client, rights)
        await wait_equal(secured.plain, target, "withdrawn")
        await eventually(lambda: is_in("MIRRORING"))
        await delete_acls(client, [exactly(rights[0])])
        await produce_batches(secured.plain, "withdrawn", 0, 40, 20)
        await eventually(lambda: is_in("SOURCE_UNAVAILABLE", "topic_authorization_failed"))
        mirror.kill()
        mirror.start()
        await eventually(lambda: is_in("SOURCE_UNAVAILABLE", "topic_authorization_failed"))
        await create_acls(client, rights)
        await wait_equal(secured.plain, target, "withdrawn")
        await client.delete_topics(["withdrawn"])
        await eventually(lambda: is_in("RESET", "the source has deleted topic"))


async def test_a_cluster_without_an_authorizer_is_named_in_the_mirror_s_status(
    secured: SecuredKafka, apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    await create_topic(secured.plain, "unguarded", 1)
    settings = {"whitelist": "unguarded", "sync.topic.acls.enabled": "true", "acl.sync.interval.ms": "50"}
    target = apache_kafka.bootstrap_servers
    mirror = start_translate_mirror(processes, tmp_path, "mirror", secured.plain, target, settings)
    reason = "the target has no authorizer (security_disabled)"

    async def says_so() -> bool:
        return reason in (await describe_mirror(mirror)).acls

    await eventually(says_so)
    assert mirror.log_text().count(reason) == 1
