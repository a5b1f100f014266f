"""Fixtures for every test: a clock, processes that never outlive it, real ZooKeeper and toxiproxy.

`zookeeper_connect` and `toxiproxy` share one server for the session and are clean for each test; a
test that breaks the server itself takes `own_zookeeper`. Everything that starts a process lives in
`tests/support`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from deploy import jar_sets
from deploy.toxiproxy_server import ToxiproxyServer
from runtime import logs
from runtime.garbage import SurvivorsLeftAlone
from runtime.process import raise_descriptor_limit
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clock import ManualClock
from tests.support.disks.logs_on_disk import abandon_opened_logs
from tests.support.examples import examples
from tests.support.processes.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.processes.java_key_stores import JavaKeyStores, make_key_stores
from tests.support.processes.ports import free_port
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from tests.support.processes.zookeeper import ZooKeeperProcess, start_zookeeper
from tests.support.workers import GroupScheduling, is_worker, put_longest_first, take_ports_of_worker

# No deadline for a single example: the machine may be busy, and a hang is the business of
# pytest-timeout.
settings.register_profile("house", deadline=None, max_examples=examples(100))
settings.load_profile("house")

raise_descriptor_limit()
take_ports_of_worker()

# As in a daemon, and before anything logs: a logger that was used before would not be seen by
# `capture_logs` after.
logs.configure("tests", level="WARNING")
logging.getLogger().handlers.clear()  # pytest shows what is logged


@pytest.fixture(autouse=True)
def _no_log_left_open() -> Iterator[None]:
    yield
    abandon_opened_logs()


@pytest.fixture(autouse=True)
def _no_collector_left_changed() -> Iterator[None]:
    """A daemon that runs inside a test changes when its process collects garbage; the next test
    finds the collector as it was. Hypothesis, for one, refuses to begin in a process whose
    objects are frozen.
    """
    callbacks, threshold = list(gc.callbacks), gc.get_threshold()
    yield
    if gc.get_threshold() != threshold:
        gc.callbacks[:] = [
            callback
            for callback in gc.callbacks
            if callback in callbacks or not isinstance(callback, SurvivorsLeftAlone)
        ]
        gc.set_threshold(*threshold)
        gc.unfreeze()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test advances it."""
    return ManualClock()


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts processes that end with the test."""
    owned = Processes()
    try:
        yield owned
    finally:
        owned.end_all()


@pytest.fixture(scope="session")
def session_processes() -> Iterator[Processes]:
    """Starts processes that end with the session."""
    owned = Processes()
    try:
        yield owned
    finally:
        owned.end_all()


@pytest.fixture(scope="session")
def zookeeper_server(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> ZooKeeperProcess:
    """The session's ZooKeeper; leave it running."""
    return start_zookeeper(session_processes, tmp_path_factory.mktemp("zookeeper"))


@pytest.fixture
def zookeeper_connect(zookeeper_server: ZooKeeperProcess) -> str:
    """A connect string with a chroot that is this test's alone, existing and empty."""
    return zookeeper_server.new_chroot("test")


@pytest.fixture
def own_zookeeper(processes: Processes, tmp_path: Path) -> ZooKeeperProcess:
    """A ZooKeeper that the test may kill, pause and restart."""
    return start_zookeeper(processes, tmp_path / "zookeeper")


@pytest.fixture(scope="session")
def toxiproxy_server(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Toxiproxy:
    """The session's toxiproxy; tests take `toxiproxy` instead."""
    server = ToxiproxyServer(name="toxiproxy", directory=tmp_path_factory.mktemp("toxiproxy"), port=free_port())
    session_processes.run(server.child()).wait_ready(server.is_serving)
    return Toxiproxy(server.port)


@pytest.fixture
def toxiproxy(toxiproxy_server: Toxiproxy) -> Iterator[Toxiproxy]:
    """A toxiproxy without proxies, before the test and after it."""
    toxiproxy_server.delete_all()
    try:
        yield toxiproxy_server
    finally:
        toxiproxy_server.delete_all()


@pytest.fixture(scope="session")
def kafka_programs() -> KafkaPrograms:
    """Apache Kafka's Java programs; the test is skipped where they have not been fetched."""
    if not jar_sets.KAFKA.is_there:
        pytest.skip(
            f"Apache Kafka {jar_sets.KAFKA.version} is not in the parts folder: `make setup-java` fetches it by Maven"
        )
    return KafkaPrograms()


@pytest.fixture(scope="session")
def apache_kafka(
    session_processes: Processes,
    kafka_programs: KafkaPrograms,
    tmp_path_factory: pytest.TempPathFactory,
) -> ApacheKafka:
    """The session's Apache Kafka broker, to compare with; topics are created by naming them."""
    return start_apache_kafka(session_processes, tmp_path_factory.mktemp("apache-kafka"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that take longest first, where workers share the tests."""
    if is_worker():
        put_longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """How workers share the tests."""
    return GroupScheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--golden-rewrite`, for `make golden-rewrite`."""
    parser.addoption("--golden-rewrite", action="store_true", help="write today's answers into the golden scripts")


@pytest.fixture
def is_golden_rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden scripts are to be rewritten instead of compared (for
    tests/support/golden.py).
    """
    return bool(request.config.getoption("--golden-rewrite"))


@pytest.fixture(scope="session")
def java_key_stores(tmp_path_factory: pytest.TempPathFactory) -> JavaKeyStores:
    """Key stores of keytool's; skips without one."""
    return make_key_stores(tmp_path_factory.mktemp("key-stores"))
