"""A site of three brokers and three ZooKeepers under random faults, while librdkafka and Java
produce to it with acks=all.

Promised, after any process is killed, paused or disconnected: every acknowledged record is at its
acknowledged offset; idempotent producers' records are in the log once and in order; offsets have no
gaps; no leader epoch has two leaders; and after the faults, producers continue by themselves, all
replicas are in sync and their files have the same bytes.

`ANTIPODE_FAULTS` says how many faults the long run makes, `ANTIPODE_SEED` repeats a run's choices.
Partitions of the whole network need root and `ip`; without them toxiproxy parts brokers from
ZooKeeper, and nothing else is cut.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.java_load import JavaLoad
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from tests.support.processes.zookeeper import ZooKeeperEnsemble, start_zookeeper_ensemble
from tests.support.sites.replica_comparison import check_leaderships, check_replicas
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from tests.support.sites.site_faults import MEMBERS, SiteFaults
from tests.support.sites.site_network import HERE, SiteNetwork, site_network
from tests.support.sites.zookeeper_proxies import ZooKeeperProxies

pytestmark = pytest.mark.chaos

FAULTS_SHORT = 4
FAULTS_LONG = int(os.environ.get("ANTIPODE_FAULTS", "150"))
SECONDS_PER_FAULT_MAX = 60
PARTITIONS = 3
TOPICS = ("idempotent", "plain", "java")
PROGRESS_RECORDS = 20
PROGRESS_WITHIN_MS = 120_000
CLIENT = {"socket.timeout.ms": 3000, "socket.connection.setup.timeout.ms": 2000}
"""A client that waits a minute for a broker which has vanished shows its own timeout, not the
site's.
"""
PLAIN = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1, "retries": 2147483647}


@pytest.fixture
def network() -> Iterator[SiteNetwork | None]:
    with site_network((*map(str, NODES), *MEMBERS)) as made:
        yield made


@pytest.fixture
def ensemble(processes: Processes, tmp_path: Path, network: SiteNetwork | None) -> ZooKeeperEnsemble:
    places = [HERE if network is None else network.place(name) for name in MEMBERS]
    return start_zookeeper_ensemble(processes, tmp_path / "zookeeper", places=places)


@pytest.fixture
def proxies(toxiproxy: Toxiproxy, ensemble: ZooKeeperEnsemble) -> ZooKeeperProxies:
    return ZooKeeperProxies(toxiproxy, ensemble, nodes=[str(node) for node in NODES], members=MEMBERS)


@pytest.fixture
def site(
    processes: Processes,
    tmp_path: Path,
    network: SiteNetwork | None,
    ensemble: ZooKeeperEnsemble,
    proxies: ZooKeeperProxies,
) -> ReplicatedSite:
    settings = {"log.segment.bytes": "1100000"}
    if network is None:
        connects = {node: proxies.connect(str(node)) for node in NODES}
        return ReplicatedSite(processes, tmp_path, connects, settings)
    places = {node: network.place(str(node)) for node in NODES}
    return ReplicatedSite(processes, tmp_path, ensemble.connect, settings, places=places)


@pytest.fixture
def faults(
    site: ReplicatedSite, ensemble: ZooKeeperEnsemble, network: SiteNetwork | None, proxies: ZooKeeperProxies
) -> SiteFaults:
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(1 << 32))
    return SiteFaults(
        site, ensemble, network or proxies, is_network_whole=network is not None, topic=TOPICS[0], seed=seed
    )


class Loads:
    """Three producers, a topic each."""

    def __init__(self, site: ReplicatedSite, programs: KafkaPrograms, processes: Processes, directory: Path) -> None:
        self._site = site
        for topic in TOPICS:
            site.create(topic, PARTITIONS, min_insync_replicas="2")
        bootstrap = site.bootstrap
        self.idempotent = AcknowledgedLoad(bootstrap, TOPICS[0], PARTITIONS, records_per_second=150, settings=CLIENT)
        self._plain = AcknowledgedLoad(
            bootstrap, TOPICS[1], PARTITIONS, records_per_second=100, settings={**CLIENT, **PLAIN}
        )
        self._java = JavaLoad(
            programs,
            processes,
            directory,
            bootstrap_servers=bootstrap,
            topic=TOPICS[2],
            settings={"request.timeout.ms": "3000", "socket.connection.setup.timeout.ms": "2000"},
        )
        self._all = (self.idempotent, self._plain, self._java)
        self.idempotent.start()
        self._plain.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.idempotent.__exit__(*error)
        self._plain.__exit__(*error)

    def go_on(self) -> None:
        """Every producer gets records acknowledged now."""
        for load in self._all:
            load.wait_acknowledged(PROGRESS_RECORDS, PROGRESS_WITHIN_MS)

    async def check(self) -> str:
        """Stop, and check every promise about records. Returns the counts of acknowledged records
        as a line of text.
        """
        counts = [load.finish() for load in self._all]
        for topic in TOPICS:
            self._site.wait_whole(topic, 60_000)
            self._site.wait_equal(topic, PARTITIONS)
            check_replicas(self._site, topic, PARTITIONS)
        await self.idempotent.check_log(self._site.bootstrap)
        await self._plain.check_log(self._site.bootstrap, may_repeat=True)
        await self._java.check_log(self._site.bootstrap)
        epochs = check_leaderships(self._site)
        named = ", ".join(f"{count} {topic}" for count, topic in zip(counts, TOPICS, strict=True))
        return f"acknowledged and found: {named}; {epochs} leader epochs"


async def survive(site: ReplicatedSite, loads: Loads, faults: SiteFaults, count: int) -> None:
    """This many faults, progress after each, and all promises at the end; a failure shows the
    history.
    """
    history = faults.history
    try:
        loads.go_on()
        while history.kinds.total() < count:
            since = time.monotonic()
            kind = faults.strike()
            faults.settle()
            loads.go_on()
            history.silences_ms[kind].append(max(loads.idempotent.silences_ms(since)))
            if not faults.may_go_on_unhealed():
                for topic in TOPICS:
                    site.wait_whole(topic, 60_000)
        outcome = await loads.check()
    except BaseException as error:
        error.add_note(history.reported())
        raise
    print(f"{history.summary()}\n{outcome}")


@pytest.mark.long
@pytest.mark.timeout(SECONDS_PER_FAULT_MAX * FAULTS_SHORT)
async def test_a_few_faults_lose_repeat_and_reorder_nothing(
    site: ReplicatedSite, faults: SiteFaults, processes: Processes, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    with Loads(site, kafka_programs, processes, tmp_path / "java") as loads:
        await survive(site, loads, faults, FAULTS_SHORT)


@pytest.mark.long
@pytest.mark.timeout(SECONDS_PER_FAULT_MAX * FAULTS_LONG + 120)
async def test_hundreds_of_faults_lose_repeat_and_reorder_nothing(
    site: ReplicatedSite, faults: SiteFaults, processes: Processes, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    with Loads(site, kafka_programs, processes, tmp_path / "java") as loads:
        await survive(site, loads, faults, FAULTS_LONG)
