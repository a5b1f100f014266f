"""Unmodified clients of five kinds against a pair of sites, every advertised address of which is
behind toxiproxy.

Promised: clients can produce with acks=all, read in a group, commit, and resume after a restart,
with an address of either site. After `antipode failover` the same clients, unchanged and some of
them without a restart, continue at the promoted site at the same offsets (F1).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.foreign_clients import FOREIGN_CLIENTS, ForeignClient
from tests.support.clients.java_clients import CONSOLE_PRODUCER, KafkaPrograms
from tests.support.clients.kafka_clients import librdkafka_consume
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import caught_up, log_ends, site_client
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.integration

BY_NAME = {client.name: client for client in FOREIGN_CLIENTS}


class ProxiedPair:
    """Sites a and b; clients are given addresses of proxies and learn no other."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites
        self.addresses = sites.put_clients_behind_proxies()

    async def create_topic(self, name: str) -> None:
        async with KafkaClient(self.addresses["a"]) as client:
            (outcome,) = await client.create_topics([NewTopic(name=name, partition_count=1)])
            assert not outcome.error_code, outcome

    async def committed(self, site: str, group: str, topic: str) -> int | None:
        async with site_client(self.addresses[site]) as client:
            offsets = await client.committed(group, [(topic, 0)])
            found = offsets.get((topic, 0))
            return None if found is None else found.offset

    async def offsets_follow(self, group: str, topic: str, offset: int) -> None:
        """Wait until the standby has this offset of the group."""

        async def is_there() -> bool:
            return await self.committed("b", group, topic) == offset

        await eventually(is_there)

    async def caught_up(self) -> dict[tuple[str, int], int]:
        return await caught_up(self.addresses["a"], self.addresses["b"])


@pytest.fixture(scope="module")
def shared_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedPair]:
    """One pair for the tests that leave it as it was."""
    starter = SitesStarter(tmp_path_factory.mktemp("clients"))
    try:
        yield ProxiedPair(starter())
    finally:
        starter.end_all()


@pytest.fixture(params=sorted(BY_NAME))
def client(request: pytest.FixtureRequest) -> ForeignClient:
    found = BY_NAME[request.param]
    if found.missing:
        pytest.skip(found.missing)
    return found


def values(first: int, end: int) -> list[bytes]:
    return [b"value-%d" % number for number in range(first, end)]


def numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"value-%d" % number) for number in range(first, end)]


async def test_clients_learn_addresses_of_proxies_only(shared_pair: ProxiedPair) -> None:
    proxied = set(shared_pair.addresses.values())
    for address in proxied:
        async with KafkaClient(address) as client:

            async def learns_proxies_only(client: KafkaClient = client) -> bool:
                brokers = (await client.metadata()).brokers.values()
                return {str(broker.address) for broker in brokers} == proxied

            # A site learns the other's new addresses at its next request.
            await eventually(learns_proxies_only)


async def test_a_client_produces_reads_in_a_group_commits_and_resumes(
    shared_pair: ProxiedPair, client: ForeignClient
) -> None:
    topic, group = f"orders-{client.name}", f"board-{client.name}"
    await shared_pair.create_topic(topic)
    a, b = shared_pair.addresses["a"], shared_pair.addresses["b"]
    await asyncio.to_thread(client.produce, a, topic, values(0, 100))
    assert await asyncio.to_thread(client.consume, a, topic, group, 60) == numbered(0, 60)
    await asyncio.to_thread(client.produce, b, topic, values(100, 120))
    assert await asyncio.to_thread(client.consume, b, topic, group, 60) == numbered(60, 120)
    assert await shared_pair.committed("a", group, topic) == 120
    assert (await shared_pair.caught_up())[topic, 0] == 120
    await shared_pair.offsets_follow(group, topic, 120)


class RunningJavaProducer:
    """Kafka's console producer, fed line by line and never restarted."""

    def __init__(self, programs: KafkaPrograms, bootstrap: str, topic: str, log: Path) -> None:
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--sync", "--timeout", "0"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                programs.command(CONSOLE_PRODUCER, *arguments),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def say(self, value: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(value + b"\n")
        self._process.stdin.flush()

    def close(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def end_of(pair: ProxiedPair, site: str, topic: str) -> int:
    async with site_client(pair.addresses[site]) as client:
        return (await log_ends(client)).get((topic, 0), 0)


def failed_over(pair: ProxiedPair, *arguments: str) -> dict[str, object]:
    """The report of `antipode failover a-b --to b`, which must succeed."""
    ended = pair.sites.command("failover", "a-b", "--to", "b", "--output", "json", *arguments)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, object] = json.loads(ended.stdout)
    return report


@pytest.mark.long
async def test_f1_all_kinds_of_clients_go_on_at_the_promoted_site_at_the_same_offsets(
    start_sites: SitesStarter,
) -> None:
    pair = ProxiedPair(await asyncio.to_thread(start_sites))
    a, b = pair.addresses["a"], pair.addresses["b"]
    clients = [client for client in FOREIGN_CLIENTS if not client.missing]

    async def before(client: ForeignClient) -> None:
        await pair.create_topic(client.name)
        await asyncio.to_thread(client.produce, a, client.name, values(0, 50))
        assert await asyncio.to_thread(client.consume, a, client.name, client.name, 30) == numbered(0, 30)
        await pair.offsets_follow(client.name, client.name, 30)

    async def after(client: ForeignClient) -> None:
        assert await asyncio.to_thread(client.consume, b, client.name, client.name, 20) == numbered(30, 50)
        await asyncio.to_thread(client.produce, b, client.name, values(50, 60))
        await asyncio.to_thread(client.produce, a, client.name, values(60, 70))
        assert await asyncio.to_thread(client.consume, a, client.name, client.name, 20) == numbered(50, 70)

    async def is_mirrored_back(topic: str) -> bool:
        return await end_of(pair, "a", topic) == 70

    await asyncio.gather(*(before(client) for client in clients))
    report = await asyncio.to_thread(failed_over, pair)
    assert report["outcome"] == "done"
    await asyncio.gather(*(after(client) for client in clients))
    for client in clients:
        assert await end_of(pair, "b", client.name) == 70
        await eventually(partial(is_mirrored_back, client.name))
    pair.sites.stop()


@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(False, id="planned", marks=pytest.mark.long), pytest.param(True, id="site-killed")],
)
async def test_f1_f2_clients_that_are_never_restarted_follow_the_promotion(
    start_sites: SitesStarter, tmp_path: Path, is_killed: bool, kafka_programs: KafkaPrograms
) -> None:
    from aiokafka import AIOKafkaProducer
    from confluent_kafka import Consumer, Producer

    pair = ProxiedPair(await asyncio.to_thread(start_sites))
    a = pair.addresses["a"]
    for topic in ("librdkafka", "aiokafka", "java"):
        await pair.create_topic(topic)
    producer = Producer({"bootstrap.servers": a, "enable.idempotence": True, "log_level": 2})
    settings = {"bootstrap.servers": a, "group.id": "living", "auto.offset.reset": "earliest", "log_level": 2}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["librdkafka", "aiokafka", "java"])
    slow = AIOKafkaProducer(bootstrap_servers=a, enable_idempotence=True)
    await slow.start()
    java = RunningJavaProducer(kafka_programs, a, "java", tmp_path / "java-producer.log")
    read: dict[str, list[tuple[int, bytes]]] = {"librdkafka": [], "aiokafka": [], "java": []}

    def all_read(end: int) -> bool:
        for message in consumer.consume(100, timeout=0.1):
            if message.error() is None:
                read[message.topic()].append((message.offset(), message.value()))
        # A record that is read twice is not another record.
        return all(len(set(found)) >= end for found in read.values())

    async def produce_through_all(first: int, end: int) -> None:
        for value in values(first, end):
            producer.produce("librdkafka", value, partition=0)
            java.say(value)
        assert await asyncio.to_thread(producer.flush, 40) == 0
        for value in values(first, end):
            await slow.send_and_wait("aiokafka", value, partition=0)

    try:
        await produce_through_all(0, 20)
        await asyncio.to_thread(eventually_sync, lambda: all_read(20))
        await asyncio.to_thread(consumer.commit, asynchronous=False)
        await pair.caught_up()
        for topic in read:
            await pair.offsets_follow("living", topic, 20)
        if is_killed:
            pair.sites.broker("a").kill()
        await asyncio.to_thread(failed_over, pair, *(["--old-site-is-down"] if is_killed else []))
        await produce_through_all(20, 40)
        await asyncio.to_thread(eventually_sync, lambda: all_read(40), 60_000)
        assert java.close() == 0
        for topic in read:
            assert await end_of(pair, "b", topic) == 40
            # A group that joins anew at the promoted site may read again what it had not committed,
            # and nothing before that.
            assert read[topic][:20] == numbered(0, 20)
            assert sorted(set(read[topic][20:])) == numbered(20, 40)
    finally:
        java.kill()
        consumer.close()
        await slow.stop()
    received = librdkafka_consume(pair.addresses["b"], "java", 40, group="late")
    assert [(record.offset, record.value) for record in received] == numbered(0, 40)
