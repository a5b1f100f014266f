"""Starts `tests/support/lone_brokers/lone_broker.py` as a process and returns where it listens."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.children import Child
from tests.support.internal_topics import internal_topic_copies
from tests.support.processes.ports import free_ports
from tests.support.processes.processes import Processes, RunningProcess

REPOSITORY = Path(__file__).parents[3]


class LoneBroker:
    """One broker process on a port of its own, which it keeps when it is started again."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        *,
        module: str = "tests.support.lone_brokers.lone_broker",
        environment: Mapping[str, str] | None = None,
        **properties: str,
    ) -> None:
        (self.port,) = free_ports(1)
        self.data = directory / "data"
        given = {
            "node.id": "1",
            "listeners": f"CLIENT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "zookeeper.connect": "none:1",
            **internal_topic_copies(1),
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        child = Child(
            name="lone-broker",
            command=[sys.executable, "-m", module, *(f"{key}={given[key]}" for key in given)],
            directory=directory,
            log=directory / "broker.log",
            environment={"PYTHONPATH": os.pathsep.join([str(REPOSITORY)]), **(environment or {})},
        )
        self.process: RunningProcess = processes.run(child)
        self._starts = 1
        self.facts = self._wait_ready()

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"127.0.0.1:{self.port}"

    def _wait_ready(self) -> dict[str, Any]:
        self.process.wait_ready(lambda: len(self._announcements()) >= self._starts)
        facts: dict[str, Any] = json.loads(self._announcements()[-1])
        return facts

    def _announcements(self) -> list[str]:
        # a line without its end is still being written
        lines = self.process.log_text().splitlines(keepends=True)
        return [line for line in lines if line.startswith('{"ports"') and line.endswith("\n")]

    def restart(self) -> None:
        """Start the ended process again on the same port and data."""
        self._starts += 1
        self.process.start()
        self.facts = self._wait_ready()
