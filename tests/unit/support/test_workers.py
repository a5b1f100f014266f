"""Who takes which tests, and the ports of each worker."""

from __future__ import annotations

from typing import Any

from tests.support.workers import LONGEST, ports_of_worker, share_out


class Item:
    """What the sharing knows of a test."""

    def __init__(self, nodeid: str, *fixturenames: str) -> None:
        self.nodeid = nodeid
        self.fixturenames = fixturenames
        self.groups: list[str] = []

    def add_marker(self, mark: Any) -> None:
        self.groups.append(*mark.args)


def test_workers_divide_the_range_of_ports() -> None:
    environment = {"PYTEST_XDIST_WORKER_COUNT": "3", "ANTIPODE_PORTS": "12000-12299"}
    ranges = [ports_of_worker({**environment, "PYTEST_XDIST_WORKER": f"gw{number}"}) for number in range(3)]
    assert ranges == ["12000-12099", "12100-12199", "12200-12299"]
    assert ports_of_worker({"ANTIPODE_PORTS": "12000-12299"}) is None


def test_files_that_share_a_fixture_of_the_session_are_one_group_and_long_groups_come_first() -> None:
    items: list[Any] = [
        Item("tests/a.py::test_1"),
        Item("tests/b.py::test_1", "apache_kafka", "tmp_path"),
        Item("tests/a.py::test_2"),
        Item("tests/c.py::test_1"),
        Item("tests/c.py::test_2", "apache_kafka", "kafka_b"),
        Item(f"{LONGEST[-2]}::test_1"),
    ]
    share_out(items)
    assert {item.nodeid: item.groups for item in items} == {
        "tests/a.py::test_1": ["tests/a.py"],
        "tests/a.py::test_2": ["tests/a.py"],
        "tests/b.py::test_1": ["Apache Kafka"],
        "tests/c.py::test_1": ["two Apache Kafkas"],
        "tests/c.py::test_2": ["two Apache Kafkas"],
        f"{LONGEST[-2]}::test_1": [LONGEST[-2]],
    }
    assert [item.nodeid.partition("::")[0] for item in items] == [
        "tests/c.py",
        "tests/c.py",
        "tests/b.py",
        LONGEST[-2],
        "tests/a.py",
        "tests/a.py",
    ]
