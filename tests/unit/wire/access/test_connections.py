"""Connections to the control plane that make no call are one line in the log, however many."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.support.clock import ManualClock
from wire.access.connections import CALLERS_KEPT, WINDOW_MS, WITHOUT_CALL_MIN, ControlConnections


def counts(connections: ControlConnections) -> dict[str, float]:
    return {sample.name: sample.value for family in connections.families() for sample in family.samples}


def test_a_storm_of_connections_without_calls_is_one_line() -> None:
    clock = ManualClock()
    connections = ControlConnections(clock)
    with capture_logs() as lines:
        for _ in range(1000):
            connections.begin()
            clock.advance(WINDOW_MS / 1000)
            connections.note_call("ipv4:10.0.0.1:5000")
    (line,) = lines
    assert line["log_level"] == "warning"
    assert (line["connections"], line["without_call"]) == (1000, 999)
    assert counts(connections) == {
        "antipode_control_connections_total": 1000,
        "antipode_control_calling_connections_total": 1,
    }


def test_connections_with_calls_and_a_few_without_are_no_line() -> None:
    clock = ManualClock()
    connections = ControlConnections(clock)
    with capture_logs() as lines:
        for number in range(1000):
            connections.begin()
            connections.note_call(f"ipv4:10.0.0.1:{number}")
        for _ in range(WITHOUT_CALL_MIN - 1):
            connections.begin()
        for _ in range(2):
            clock.advance(WINDOW_MS)
            connections.note_call("ipv4:10.0.0.1:0")
    assert lines == []


def test_the_memory_of_callers_is_bounded() -> None:
    connections = ControlConnections(ManualClock())
    for number in range(2 * CALLERS_KEPT):
        connections.note_call(f"ipv4:10.0.0.1:{number}")
    assert len(connections._callers) == CALLERS_KEPT
