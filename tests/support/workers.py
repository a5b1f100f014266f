"""How tests are shared out among the workers of pytest-xdist (`make test`, decision 0130).

A worker takes a group of tests after another. The tests of a file stay together, and so do the
files that share what is expensive to start: Apache Kafka, a Spark session, a pair with a bridge.
The groups that take longest come first, so that all workers end at about the same time.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pytest

from deploy.ports import PORT_MAX, PORT_MIN, RANGE_VARIABLE

WORKER_VARIABLE: Final = "PYTEST_XDIST_WORKER"
WORKERS_VARIABLE: Final = "PYTEST_XDIST_WORKER_COUNT"
SHARED: Final = {
    "kafka_b": "two Apache Kafkas",
    "apache_kafka": "Apache Kafka",
    "spark": "Spark",
    "brokers": "Spark",
    "bridged_site": "bridge",
}
"""Fixtures of a session, and the group of the files that use one; the first one that a file uses
counts.
"""
LONGEST: Final = (
    "Spark",
    "two Apache Kafkas",
    "Apache Kafka",
    "tests/integration/sites/test_pages.py",
    "tests/integration/sites/test_commands.py",
    "tests/sim/test_simulation.py",
    "tests/sim/test_mutants.py",
    "tests/integration/broker/test_replication.py",
    "tests/integration/sites/test_up.py",
    "tests/integration/sites/test_lease.py",
    "tests/integration/test_failing_over_again.py",
    "tests/integration/test_mirror.py",
    "tests/integration/broker/test_logins.py",
    "bridge",
)


def is_worker() -> bool:
    """Whether this process is one of several that share the tests."""
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


def share_out(items: list[pytest.Item]) -> None:
    """Mark each test with its group, and put the groups that take longest first."""
    fixtures: dict[str, set[str]] = defaultdict(set)
    for item in items:
        fixtures[_file(item)].update(_fixtures(item))
    groups = {file: _group(file, used) for file, used in fixtures.items()}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups[_file(item)]))
    items.sort(key=lambda item: _rank(groups[_file(item)]))


def _group(file: str, fixtures: Iterable[str]) -> str:
    used = set(fixtures)
    return next((group for fixture, group in SHARED.items() if fixture in used), file)


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _fixtures(item: pytest.Item) -> Sequence[str]:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return names
