"""State changes go into a file of their own when there is one, and nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.logs import STATE_CHANGE, LogLines, configure, get_logger, state_change_logger


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, state_change = logging.getLogger(), logging.getLogger(STATE_CHANGE)
    before = root.handlers[:], root.level, state_change.handlers[:], state_change.propagate
    yield
    for handler in (*root.handlers, *state_change.handlers):
        if handler not in (*before[0], *before[2]):
            handler.close()
    root.handlers[:], state_change.handlers[:] = before[0], before[2]
    root.setLevel(before[1])
    state_change.propagate = before[3]


def test_state_changes_have_a_file_of_their_own(tmp_path: Path) -> None:
    ordinary, changes = tmp_path / "broker.log", tmp_path / "state-change.log"
    configure("broker", file=ordinary, state_change_file=changes)
    get_logger("broker.main").info("broker started")
    state_change_logger().info("partition", topic="orders", leader=1001)
    assert "broker started" in ordinary.read_text()
    assert "orders" not in ordinary.read_text()
    (line,) = changes.read_text().splitlines()
    assert "event=partition" in line
    assert "topic=orders leader=1001" in line


def test_many_state_changes_written_at_once_are_the_lines_that_each_alone_would_be(tmp_path: Path) -> None:
    changes = tmp_path / "state-change.log"
    configure("broker", file=tmp_path / "broker.log", state_change_file=changes)
    texts = ["plain-text_1.0:9/a", "", "of two words", 'quoted "so"', "a=b", "back\\slash", "two\nlines", "übrig"]
    values = [*texts, 0, -1, True, None, 1.5, [1, 2], ["a b"]]
    rows = [{"topic": "orders", "partition": 1, "isr": [1, 2], "value": value} for value in values]
    for row in rows:
        state_change_logger().info("partition", **row)
    state_change_logger().info("of two words", topic="orders")
    together = LogLines(STATE_CHANGE, "partition")
    for row in rows:
        together.add(**row)
    together.add(event="of two words", topic="orders")
    together.write()
    together.write()
    lines = [line.partition(" ")[2] for line in changes.read_text().splitlines()]
    assert len(lines) == 2 * (len(values) + 1)
    assert lines[len(values) + 1 :] == lines[: len(values) + 1]


def test_lines_below_the_level_are_not_written(tmp_path: Path) -> None:
    configure("broker", level="ERROR", file=tmp_path / "broker.log")
    lines = LogLines(STATE_CHANGE, "partition")
    lines.add(topic="orders")
    lines.write()
    assert not (tmp_path / "broker.log").read_text()


def test_no_value_from_outside_begins_a_line_or_commands_a_terminal(tmp_path: Path) -> None:
    """Client ids, names of users and paths of requests come from clients that may have no login."""
    ordinary = tmp_path / "broker.log"
    configure("broker", file=ordinary)
    forged = "\r\n\x0b\x0c\x1c\x85\u2028event=allowed \x1b[2J\t\x00"
    get_logger("broker.main").info("denied", client=forged, name="ü 李")
    lines = LogLines("broker.main", "denied")
    lines.add(client=forged, name="ü 李")
    lines.write()
    written = ordinary.read_bytes().decode()
    assert [line.isprintable() for line in written.split("\n")] == [True, True, True]
    assert written.count("event=denied") == written.count("ü 李") == 2
    assert written.count(r"\x1b[2J") == 2
