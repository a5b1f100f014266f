"""A site whose brokers have secured listeners only: they replicate, send markers and forward over
TLS, and log in at each other by SCRAM before ZooKeeper has any user.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.kafka_clients import Record, librdkafka_consume, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.lone_brokers.secured_broker import BROKER, BROKER_PASSWORD, jaas
from tests.support.processes.secured_kafka import Certificates, make_certificates
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_broker import SiteBroker
from wire.rules.scram import decode_credential

pytestmark = pytest.mark.integration

RECORDS = [Record(b"value-%d" % number, partition=number % 2) for number in range(200)]
CLIENT = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": BROKER,
    "sasl.password": BROKER_PASSWORD,
}


def properties(certificates: Certificates) -> dict[str, Any]:
    return {
        "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.location": str(certificates.authority),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        **{
            f"listener.name.{name}.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256", BROKER, BROKER_PASSWORD)
            for name in ("client", "internal")
        },
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "2",
        "min.insync.replicas": "2",
        "num.partitions": "2",
    }


@pytest.fixture
async def brokers(own_zookeeper: ZooKeeperProcess, tmp_path: Path) -> AsyncIterator[list[SiteBroker]]:
    given = properties(make_certificates(tmp_path / "certificates"))
    made = [SiteBroker(own_zookeeper.connect, tmp_path / f"b{node}", node_id=node, **given) for node in (1, 2)]
    await asyncio.gather(*(broker.start() for broker in made))
    yield made
    for broker in made:
        await broker.stop()


async def test_brokers_log_in_at_each_other_and_serve_clients_groups_and_transactions(
    brokers: list[SiteBroker], tmp_path: Path
) -> None:
    client = {**CLIENT, "ssl.ca.location": str(tmp_path / "certificates" / "ca.pem")}
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    await asyncio.to_thread(librdkafka_produce, bootstrap, "replicated", RECORDS, settings={**client, "acks": "all"})
    got = await asyncio.to_thread(librdkafka_consume, bootstrap, "replicated", len(RECORDS), group="g", settings=client)
    assert sorted(record.value or b"" for record in got) == sorted(record.value or b"" for record in RECORDS)
    await asyncio.to_thread(_commit_a_transaction, bootstrap, client)
    committed = await asyncio.to_thread(
        librdkafka_consume,
        bootstrap,
        "transacted",
        2,
        group="t",
        settings={**client, "isolation.level": "read_committed"},
    )
    assert {record.value for record in committed} == {b"0", b"1"}

    await asyncio.to_thread(_add_user, bootstrap, client)
    node = await brokers[0].zookeeper.get("/config/users/erin")
    stored = json.loads(node[0])["config"]["SCRAM-SHA-256"]
    assert decode_credential(stored).iterations == 4096
    erin = {**client, "sasl.username": "erin", "sasl.password": "erin's"}
    for broker in brokers:
        await asyncio.to_thread(librdkafka_produce, broker.bootstrap, "replicated", RECORDS[:2], settings=erin)
    await eventually(lambda: brokers[1].broker.cluster.image.scram_users == {"erin": {"SCRAM-SHA-256": stored}})


def _commit_a_transaction(bootstrap: str, client: dict[str, str]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", **client})
    producer.init_transactions(120)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("transacted", str(partition).encode(), partition=partition)
    producer.commit_transaction(120)


def _add_user(bootstrap: str, client: dict[str, str]) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": bootstrap, **client})
    wanted = UserScramCredentialUpsertion("erin", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"erin's")
    for outcome in admin.alter_user_scram_credentials([wanted]).values():
        outcome.result(120)
