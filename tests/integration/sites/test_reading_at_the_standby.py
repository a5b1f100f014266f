"""A consumer near the standby reads there (KIP-392), with an address of either site, and continues
when the sites change roles.
"""

from __future__ import annotations

from functools import partial
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clients.java_clients import CONSOLE_CONSUMER, KafkaPrograms
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.sample_topic import TOPIC, create_topic, equal_ends, produce
from tests.support.eventually import eventually_sync

pytestmark = pytest.mark.integration

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


def bytes_out(sites: EmbeddedSites, site: str) -> float:
    """The bytes of the topic that the site has sent."""
    (address,) = sites.document["sites"][site]["metrics"]
    with urlopen(f"http://{address}/metrics", timeout=30) as page:
        families = text_string_to_metric_families(page.read().decode())
        samples = [sample for family in families for sample in family.samples if sample.name == BYTES_OUT]
    return sum(sample.value for sample in samples if sample.labels.get("topic") == TOPIC)


class Reader:
    """One librdkafka consumer, never restarted."""

    def __init__(self, bootstrap_servers: str, rack: str) -> None:
        self.offsets: list[int] = []
        settings = {"group.id": f"readers-{rack}", "client.rack": rack, "auto.offset.reset": "error"}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 2,
                **settings,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def has_read(self, end: int) -> bool:
        for message in self._consumer.consume(100, timeout=0.2):
            assert message.error() is None or message.error().retriable(), message.error()
            if message.error() is None:
                self.offsets.append(message.offset())
        return len(self.offsets) >= end

    def close(self) -> None:
        self._consumer.close()


async def test_a_consumer_in_the_rack_of_the_standby_reads_there_and_goes_on_after_a_switchover(
    start_sites: SitesStarter, kafka_programs: KafkaPrograms
) -> None:
    sites = start_sites("--broker-config", f"replica.selector.class={SELECTOR}")
    await create_topic(sites)
    produce(sites, 100)
    written = 100
    near_a, near_b = Reader(sites.bootstrap("a"), "a"), Reader(sites.bootstrap("a"), "b")
    try:
        eventually_sync(lambda: near_a.has_read(written))
        assert bytes_out(sites, "b") == 0

        def is_read_at_b() -> bool:
            nonlocal written
            produce(sites, 1)
            written += 1
            eventually_sync(lambda: near_b.has_read(written))
            return bytes_out(sites, "b") > 0

        eventually_sync(is_read_at_b)
        before = bytes_out(sites, "b")
        first = f"--bootstrap-server={sites.bootstrap('a')}", "--topic", TOPIC, "--partition", "0", "--offset", "0"
        bounds = "--max-messages", str(written), "--timeout-ms", "60000", "--command-property", "client.rack=b"
        assert kafka_programs.run(CONSOLE_CONSUMER, *first, *bounds).count(b"\n") == written
        assert bytes_out(sites, "b") == before  # Java's reads at no broker that is not among the replicas
        moved = sites.command("switchover", "a-b", "--to", "b")
        assert moved.returncode == 0, moved.stdout + moved.stderr
        produce(sites, 50, site="b")
        written += 50
        for reader in (near_a, near_b):
            eventually_sync(partial(reader.has_read, written))
            assert reader.offsets == list(range(written))
    finally:
        near_a.close()
        near_b.close()
    assert await equal_ends(sites) == {(TOPIC, 0): written}
    sites.stop()
