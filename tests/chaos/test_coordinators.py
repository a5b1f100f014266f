"""Coordinators killed again and again on a site of three brokers whose internal topics have three
replicas.

Promised: a commit that was acknowledged is never lost, no partition is owned by two members of a
generation, a transaction is read whole or not at all, and everything goes on once the brokers are
back.
"""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from broker.metadata.core.cluster_image import group_partition
from tests.support.clients.group_load import GroupLoad
from tests.support.clients.group_members import GroupMember
from tests.support.clients.transactional_clients import read_values, transactional_producer
from tests.support.eventually import eventually_sync
from tests.support.histories.transaction_history import transaction_violations
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import ReplicatedSite
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

PARTITIONS = 6
WITHIN_MS = 120_000
CALL_S = 20.0
KILLS = [pytest.param(1, id="once"), pytest.param(6, id="often", marks=pytest.mark.long)]
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
}


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, SETTINGS)


@pytest.mark.parametrize("kill_count", KILLS)
@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param(("classic", "classic"), id="classic"),
        pytest.param(("consumer", "classic"), id="mixed", marks=pytest.mark.long),
    ],
)
def test_no_commit_is_lost_when_coordinators_die(
    site: ReplicatedSite, protocols: tuple[str, str], kill_count: int
) -> None:
    site.create("t", PARTITIONS)
    load = GroupLoad(site.bootstrap, "t", PARTITIONS, "g")
    members = [
        GroupMember(site.bootstrap, "t", "g", protocol=protocol, **classic_settings(protocol)) for protocol in protocols
    ]

    def is_settled() -> bool:
        for member in members:
            member.poll()
            member.try_commit()
        owned = [member.partitions() for member in members]
        assert sorted(chain.from_iterable(owned)) == list(range(PARTITIONS)), f"owned: {owned}"
        committed = load.committed()
        assert sum(committed.values()) == load.count, f"of {load.count} are committed: {committed}; owned: {owned}"
        return True

    load.produce(120)
    eventually_sync(is_settled, WITHIN_MS)
    for round_number in range(kill_count):
        killing = threading.Thread(target=site.kill_leader, args=(OFFSETS_TOPIC, group_partition("g", 2)))
        killing.start()
        if round_number % 2:  # a join or a leave is under way while the coordinator dies
            members.pop(0).close()
            members.append(GroupMember(site.bootstrap, "t", "g", protocol="classic", **classic_settings("classic")))
        load.produce(60)
        while killing.is_alive():
            for member in members:
                member.poll()
                member.try_commit()
        killing.join()
        eventually_sync(is_settled, WITHIN_MS)
    for member in members:
        member.close()


def classic_settings(protocol: str) -> dict[str, int]:
    return {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500} if protocol == "classic" else {}


class Copier:
    """Writes each number into every partition in one transaction; knows which were committed and
    which aborted.
    """

    def __init__(self, site: ReplicatedSite) -> None:
        self._bootstrap = site.bootstrap
        self._producer = transactional_producer(site.bootstrap, "copier")
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.number = 0

    def run(self, until: threading.Event) -> None:
        """Continue until the test stops it."""
        while not until.is_set():
            self.number += 1
            try:
                self._one(self.number)
            except KafkaException:
                # fenced, timed out, or unknown: a successor under the same id ends whatever is open
                self._producer = eventually_sync(self._successor, WITHIN_MS)

    def _successor(self) -> object:
        try:
            return transactional_producer(self._bootstrap, "copier")
        except KafkaException:
            return None

    def _one(self, number: int) -> None:
        producer = self._producer
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", b"%d" % number, partition=partition)
        if number % 5 == 0:
            producer.abort_transaction(CALL_S)
            self.aborted.append(number)
            return
        self._commit(number)

    def _commit(self, number: int) -> None:
        while True:
            try:
                self._producer.commit_transaction(CALL_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    continue
                if error.args[0].txn_requires_abort():
                    self._producer.abort_transaction(CALL_S)
                    self.aborted.append(number)
                    return
                raise
            self.committed.append(number)
            return


@pytest.mark.parametrize("kill_count", KILLS)
def test_transactions_are_read_whole_or_not_at_all_when_coordinators_and_leaders_die(
    site: ReplicatedSite, kill_count: int
) -> None:
    site.create("t", PARTITIONS, min_insync_replicas="2")
    copier, is_over = Copier(site), threading.Event()
    running = threading.Thread(target=copier.run, args=(is_over,))
    running.start()
    try:
        for round_number in range(kill_count):
            progress = len(copier.committed)
            eventually_sync(lambda progress=progress: len(copier.committed) >= progress + 5, WITHIN_MS)
            if round_number % 2:
                site.kill_leader("t", round_number % PARTITIONS)
            else:
                site.kill_leader(TRANSACTIONS_TOPIC, group_partition("copier", 2))
        progress = len(copier.committed)
        eventually_sync(lambda: len(copier.committed) >= progress + 5, WITHIN_MS)
    finally:
        is_over.set()
        running.join()
    transactional_producer(site.bootstrap, "copier")  # aborts a transaction that is still open
    values = read_values(site.bootstrap, "t", PARTITIONS)
    read = {partition: [int(value) for value in found] for partition, found in values.items()}
    found = transaction_violations(read, committed=copier.committed, aborted=copier.aborted)
    assert not found, "\n".join(found)
