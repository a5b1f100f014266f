"""The tests and the ports of each worker."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.support.workers import group_of, ports_of_worker, put_longest_first

LONG_FILE = "tests/integration/sites/test_up.py"


class Item(NamedTuple):
    """The part of a pytest item that the order depends on."""

    nodeid: str


def test_workers_divide_the_range_of_ports() -> None:
    environment = {"PYTEST_XDIST_WORKER_COUNT": "3", "ANTIPODE_PORTS": "12000-12299"}
    ranges = [ports_of_worker({**environment, "PYTEST_XDIST_WORKER": f"gw{number}"}) for number in range(3)]
    assert ranges == ["12000-12099", "12100-12199", "12200-12299"]
    assert ports_of_worker({"ANTIPODE_PORTS": "12000-12299"}) is None


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/integration/bridge/test_producing.py", "bridge"),
        ("tests/integration/sites/commands/test_refusals.py", "commands"),
        ("tests/integration/sites/passive/test_old_copies.py", "passive site"),
        ("tests/integration/broker/answers_as_apache_kafka/test_topics.py", "Apache Kafka"),
        ("tests/integration/test_translate_link.py", "two Apache Kafkas"),
        ("tests/integration/test_translate_transactions.py", "two Apache Kafkas"),
        ("tests/integration/broker/test_heartbeat_table.py", "Apache Kafka"),
        ("tests/integration/broker/test_requests.py", "tests/integration/broker/test_requests.py"),
    ],
)
def test_files_that_share_what_is_expensive_are_one_group(file: str, group: str) -> None:
    assert group_of(file) == group


def test_long_groups_come_first_and_others_keep_their_order() -> None:
    others = ["tests/integration/test_beginnings.py::test_b", "tests/integration/test_aggregation.py::test_a"]
    items: list[Any] = [
        Item(others[0]),
        Item(f"{LONG_FILE}::test_1"),
        Item(others[1]),
        Item("tests/integration/test_translate_link.py::t"),
    ]
    put_longest_first(items)
    assert [item.nodeid for item in items] == [
        "tests/integration/test_translate_link.py::t",
        f"{LONG_FILE}::test_1",
        *others,
    ]
