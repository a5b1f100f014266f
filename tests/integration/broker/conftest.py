"""A broker process for each module, and one of its own for tests that end it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes


@pytest.fixture(scope="session")
def lone_broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    """The session's lone broker; leave it running."""
    return LoneBroker(session_processes, tmp_path_factory.mktemp("lone-broker"))


@pytest.fixture
def start_broker(processes: Processes, tmp_path: Path) -> Callable[..., LoneBroker]:
    """Starts a broker that the test may end; properties with underscores for dots."""
    return lambda **properties: LoneBroker(processes, tmp_path / "broker", **properties)
