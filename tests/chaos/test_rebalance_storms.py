"""A group of a hundred members in a storm, by each protocol, at three brokers; and one whose
brokers are killed meanwhile.

Promised: no lost commit, no double ownership, committed offsets that never go back, every record
read (S1 to S6). Eager members are judged by the positions that the coordinator returns to them, see
`tests/support/clients/rebalance_storm.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

from broker.metadata.core.cluster_image import group_partition
from tests.support.clients.rebalance_storm import PROTOCOLS, Storm
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import ReplicatedSite
from wire.batches.group_records import OFFSETS_TOPIC
from wire.client.raw_client import KafkaClient, NewTopic, call_client

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

MEMBERS, PARTITIONS, GUSTS = 100, 120, 6
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
}
KILL_WITHIN_MS = 120_000


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path)
    configs = [argument for key, value in SETTINGS.items() for argument in ("--broker-config", f"{key}={value}")]
    try:
        yield starter("--sites", "a", "--brokers", "3", "--no-link", "--no-proxy", *configs)
    finally:
        starter.end_all()


def storm(
    bootstrap: str, protocol: str, *, members: int = MEMBERS, partitions: int = PARTITIONS, gusts: int = GUSTS
) -> Storm:
    async def create(client: KafkaClient) -> None:
        wanted = NewTopic(name="t", partition_count=partitions, replication_factor=3)
        (outcome,) = await client.create_topics([wanted])
        assert not outcome.error_code, outcome

    def committed(group: str) -> dict[int, int]:
        async def ask(client: KafkaClient) -> dict[int, int]:
            return {index: kept.offset for (_, index), kept in (await client.committed(group)).items()}

        return call_client(bootstrap, ask)

    call_client(bootstrap, create)
    return Storm(
        bootstrap_servers=bootstrap,
        topic="t",
        partition_count=partitions,
        protocol=protocol,
        member_count=members,
        gust_count=gusts,
        seed=7,
        committed=committed,
    )


@pytest.mark.long
@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_a_hundred_members_come_and_go_and_nothing_is_lost(sites: EmbeddedSites, protocol: str) -> None:
    print(storm(sites.bootstrap("a"), protocol).run())


class Killer:
    """Kills the group's coordinator and, in turns with it, leaders of the partitions that the group
    reads. Each broker starts again before the next one is killed.
    """

    def __init__(self, site: ReplicatedSite, group: str, kill_count: int) -> None:
        self._site, self._group, self._left = site, group, kill_count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer")
        self.killed = 0
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._left > self.killed and not self._stop.is_set():
                if self.killed % 2:
                    self._site.kill_leader("t", self.killed, KILL_WITHIN_MS)
                else:
                    self._site.kill_leader(OFFSETS_TOPIC, group_partition(self._group, 2), KILL_WITHIN_MS)
                self.killed += 1
        except Exception as error:
            self.failure = error


SHORT = {"members": 20, "partitions": 12, "gusts": 3}
LONG = {"members": MEMBERS, "partitions": PARTITIONS, "gusts": GUSTS}


@pytest.mark.parametrize(
    ("protocol", "size", "kill_count"),
    [
        pytest.param("consumer", SHORT, 2, id="short-consumer"),
        pytest.param("eager", SHORT, 4, id="short-eager", marks=pytest.mark.long),
        *(pytest.param(name, LONG, 8, id=f"long-{name}", marks=pytest.mark.long) for name in sorted(PROTOCOLS)),
    ],
)
def test_brokers_are_killed_while_members_come_and_go(
    processes: Processes,
    tmp_path: Path,
    zookeeper_connect: str,
    protocol: str,
    size: Mapping[str, int],
    kill_count: int,
) -> None:
    site = ReplicatedSite(processes, tmp_path, zookeeper_connect, SETTINGS)
    begun = storm(site.bootstrap, protocol, **size)
    eventually_sync(lambda: begun.committed(begun.group) == {}, KILL_WITHIN_MS)  # the coordinator is there
    with Killer(site, begun.group, kill_count) as killer:
        figures = begun.run()
    print(figures, f"{killer.killed} brokers killed")
    assert killer.failure is None, killer.failure
    assert killer.killed
