"""How tests are shared out among the workers of pytest-xdist (`make test`, decision 0130).

A worker takes a group of tests after another. The tests of a file stay together, and so do the
files that share an expensive fixture: Apache Kafka, a site with a bridge, a pair of sites. The
groups that take longest come first, so that all workers end at about the same time.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from deploy.ports import PORT_MAX, PORT_MIN, RANGE_VARIABLE

WORKER_VARIABLE: Final = "PYTEST_XDIST_WORKER"
WORKERS_VARIABLE: Final = "PYTEST_XDIST_WORKER_COUNT"
BRIDGE: Final = "bridge"
COMMANDS: Final = "commands"
PASSIVE_SITE: Final = "passive site"
TWO_KAFKAS: Final = "two Apache Kafkas"
ONE_KAFKA: Final = "Apache Kafka"
FOLDERS: Final = {
    "tests/integration/bridge/": BRIDGE,
    "tests/integration/sites/commands/": COMMANDS,
    "tests/integration/sites/passive/": PASSIVE_SITE,
    "tests/integration/broker/answers_as_apache_kafka/": ONE_KAFKA,
}
"""Folders whose files share a site with a bridge, a pair of sites, or an Apache Kafka."""
FIXTURES: Final = {"kafka_b": TWO_KAFKAS, "transactional_link": TWO_KAFKAS, "apache_kafka": ONE_KAFKA}
"""Fixtures of servers that files share; the first one that a file uses decides."""
LONGEST: Final = (
    "tests/integration/sites/test_pages.py",
    "tests/sim/test_mutants.py",
    COMMANDS,
    TWO_KAFKAS,
    "tests/sim/test_simulation.py",
    BRIDGE,
    ONE_KAFKA,
    "tests/integration/sites/test_up.py",
    "tests/integration/broker/test_own_producer.py",
    "tests/integration/sites/test_three_sites.py",
    "tests/chaos/test_mirror.py",
    "tests/integration/test_compatibility.py",
    "tests/integration/sites/test_repair.py",
    "tests/integration/broker/test_encrypted_listeners.py",
    "tests/integration/test_zookeeper_sharing.py",
    "tests/integration/sites/test_clients.py",
    "tests/integration/controller/test_keys.py",
    "tests/chaos/test_rebalance_storms.py",
    "tests/integration/broker/replication/test_in_sync_replicas.py",
    "tests/integration/broker/replication/test_lost_brokers.py",
    "tests/integration/sites/test_follower_damage.py",
    "tests/integration/broker/test_logins.py",
    "tests/integration/test_failing_over_again.py",
    "tests/integration/broker/test_links.py",
    PASSIVE_SITE,
    "tests/integration/sites/test_protection.py",
    "tests/integration/broker/test_alternating_transactions.py",
    "tests/integration/sites/test_failback.py",
    "tests/integration/sites/test_lease.py",
)
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives each worker one group after another."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


@functools.cache
def group_of(file: str) -> str:
    """The group of a file of tests, by its path from the repository's root."""
    for folder, group in FOLDERS.items():
        if file.startswith(folder):
            return group
    text = (_REPOSITORY / file).read_text(encoding="utf-8")
    return next((group for name, group in FIXTURES.items() if re.search(rf"\b{name}\b", text)), file)


def put_longest_first(items: list[pytest.Item]) -> None:
    """Put the groups that take longest first, and keep the order of the others."""
    items.sort(key=lambda item: _rank(group_of(item.nodeid.partition("::")[0])))


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


def is_worker() -> bool:
    """True if this process is one of several that share the tests."""
    return WORKER_VARIABLE in os.environ


def ports_of_worker(environment: Mapping[str, str]) -> str | None:
    """The range of ports of one worker, `first-last`; None outside a worker. The workers divide
    the range of the caller's.
    """
    worker = environment.get(WORKER_VARIABLE)
    if worker is None:
        return None
    first, _, last = environment.get(RANGE_VARIABLE, f"{PORT_MIN}-{PORT_MAX}").partition("-")
    share = (int(last) - int(first) + 1) // int(environment[WORKERS_VARIABLE])
    begin = int(first) + int(worker.removeprefix("gw")) * share
    return f"{begin}-{begin + share - 1}"


def take_ports_of_worker() -> None:
    """Have this process, and those that it starts, choose ports in the worker's range."""
    ports = ports_of_worker(os.environ)
    if ports is not None:
        os.environ[RANGE_VARIABLE] = ports
