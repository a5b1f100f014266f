"""The client processes of a drill: starts them, reads their histories while they run, and ends
them.

A client (`load.py`) appends its observations to a file. This module continues to read at its last
position, so that a wait or the live view only costs the new lines. No client outlives a drill,
because `end_all` is called however the drill ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dr.drill.core.history import Acknowledged, Delivered, Failed, read_lines
from runtime.process import OperationalFailure

REPOSITORY = Path(__file__).resolve().parents[2]
STARTED_WITHIN_S = 30.0
POLL_S = 0.02


@dataclass(slots=True)
class DrillClient:
    """One process and its history so far."""

    name: str
    history: Path
    log: Path
    process: subprocess.Popen[bytes]
    _position: int = 0

    @property
    def is_running(self) -> bool:
        """True if the process has not ended."""
        return self.process.poll() is None

    def new_facts(self) -> list[Acknowledged | Failed | Delivered]:
        """The facts that the client has written since the last call."""
        if not self.history.exists():
            return []
        with self.history.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return list(read_lines(whole.decode().splitlines(keepends=True)))

    def problem(self) -> str:
        """The reason why the process ended with an error; empty while it runs or after a clean
        end.
        """
        code = self.process.poll()
        if code in (None, 0):
            return ""
        return f"{self.name} ended with exit code {code}: {self.log.read_text(errors='replace')[-500:].strip()}"


@dataclass(slots=True)
class DrillClients:
    """Every client of one drill and the facts read from their histories."""

    directory: Path
    producers: dict[str, DrillClient] = field(default_factory=dict)
    groups: dict[str, list[DrillClient]] = field(default_factory=dict)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    delivered: dict[str, list[Delivered]] = field(default_factory=dict)
    _killed_at_ms: float | None = None
    _last_acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    _last_delivered: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    def start_producer(self, name: str, settings: dict[str, Any]) -> None:
        """Start a producing client. Raises OperationalFailure when the name is in use."""
        if name in self.producers:
            raise OperationalFailure(f"load {name!r} was started before: give each a name of its own")
        self.producers[name] = self._start("produce", name, {**settings, "name": name})

    def start_group(self, group: str, members: int, settings: dict[str, Any]) -> None:
        """Start a group's members."""
        if group in self.groups:
            raise OperationalFailure(f"group {group!r} was started before: give each a name of its own")
        self.delivered[group] = []
        self._last_delivered[group] = {}
        self.groups[group] = [
            self._start("consume", f"{group}-{number}", {**settings, "name": f"{group}-{number}", "group": group})
            for number in range(1, members + 1)
        ]

    def _start(self, verb: str, name: str, settings: dict[str, Any]) -> DrillClient:
        self.directory.mkdir(parents=True, exist_ok=True)
        history, log = self.directory / f"{name}.history", self.directory / f"{name}.log"
        file = self.directory / f"{name}.json"
        # An earlier drill with the same directory for its report may have left its history.
        history.unlink(missing_ok=True)
        file.write_text(json.dumps({**settings, "history": str(history)}), encoding="utf-8")
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "dr.drill.load", verb, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                start_new_session=True,
            )
        return DrillClient(name=name, history=history, log=log, process=process)

    async def wait_started(self, name: str) -> None:
        """Wait until all clients of a load or group have installed their signal handlers; a signal
        before that would kill them without a flush. Raises OperationalFailure.
        """
        waited = [self.producers[name]] if name in self.producers else self.groups[name]
        deadline = asyncio.get_running_loop().time() + STARTED_WITHIN_S
        # A client creates its history file after it has installed its signal handlers.
        while not all(client.history.exists() for client in waited):
            if asyncio.get_running_loop().time() > deadline or not all(client.is_running for client in waited):
                self.check_alive()
                raise OperationalFailure(f"{name} has not begun within {STARTED_WITHIN_S:g} s")
            await asyncio.sleep(POLL_S)

    def collect(self) -> None:
        """Read what all clients have written since the last call."""
        for producer in self.producers.values():
            for fact in producer.new_facts():
                if isinstance(fact, Acknowledged):
                    self.acknowledged.append(fact)
                    self._last_acknowledged[fact.topic, fact.partition] = fact.offset
                elif isinstance(fact, Failed):
                    self.failed.append(fact)
        for group, members in self.groups.items():
            for member in members:
                self._collect_deliveries(group, member)

    def _collect_deliveries(self, group: str, member: DrillClient) -> None:
        for fact in member.new_facts():
            if isinstance(fact, Delivered):
                self.delivered[group].append(fact)
                self._last_delivered[group][fact.topic, fact.partition] = fact.offset

    @property
    def delivered_count(self) -> int:
        """Deliveries to all groups."""
        return sum(len(given) for given in self.delivered.values())

    def is_delivered_all(self) -> bool:
        """True when each group has received the newest acknowledged record of every partition that
        it reads.
        """
        return all(
            last.get(place, -1) >= offset
            for last in self._last_delivered.values()
            for place, offset in self._last_acknowledged.items()
            if any(topic == place[0] for topic, _ in last)
        )

    def silence_ms(self, now_ms: float) -> float:
        """The time (ms) since the last acknowledgement to a running producer; 0 before the first
        acknowledgement.
        """
        if not self.acknowledged or not any(producer.is_running for producer in self.producers.values()):
            return 0.0
        return now_ms - self.acknowledged[-1].acknowledged_at_ms

    def sending_until_ms(self, now_ms: float) -> float | None:
        """The time until which a producer that never ended by itself tried to send; None if all
        have ended.
        """
        is_any_running = any(producer.is_running for producer in self.producers.values())
        return now_ms if is_any_running else self._killed_at_ms

    def check_alive(self) -> None:
        """Raises OperationalFailure when a client ended with an error."""
        clients = [*self.producers.values(), *(member for members in self.groups.values() for member in members)]
        problems = [problem for client in clients if (problem := client.problem())]
        if problems:
            raise OperationalFailure("; ".join(problems))

    def freeze_producer(self, name: str, *, is_frozen: bool) -> None:
        """SIGSTOP or SIGCONT."""
        self._producer(name).process.send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def _producer(self, name: str) -> DrillClient:
        if name not in self.producers:
            raise OperationalFailure(f"load {name!r} was not started; started: {', '.join(self.producers) or 'none'}")
        return self.producers[name]

    async def stop_producer(self, name: str, *, within_ms: int) -> None:
        """SIGTERM and wait until it has flushed."""
        await self._stop([self._producer(name)], within_ms)

    async def stop_group(self, name: str, *, within_ms: int) -> None:
        """SIGTERM and wait until the members have committed."""
        if name not in self.groups:
            raise OperationalFailure(f"group {name!r} was not started; started: {', '.join(self.groups) or 'none'}")
        await self._stop(self.groups[name], within_ms)

    async def _stop(self, clients: list[DrillClient], within_ms: int) -> None:
        for client in clients:
            if client.is_running:
                client.process.send_signal(signal.SIGTERM)
                # A stopped process receives SIGTERM only after SIGCONT.
                client.process.send_signal(signal.SIGCONT)
        waits = [asyncio.to_thread(client.process.wait, within_ms / 1000) for client in clients]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        late = [client.name for client, outcome in zip(clients, outcomes, strict=True) if not isinstance(outcome, int)]
        if late:
            raise OperationalFailure(f"{', '.join(late)} did not end within {within_ms} ms")
        self.collect()

    def end_all(self) -> None:
        """Kill all clients that still run."""
        if self._killed_at_ms is None and any(producer.is_running for producer in self.producers.values()):
            self._killed_at_ms = time.time() * 1000
        for client in (*self.producers.values(), *(member for members in self.groups.values() for member in members)):
            if client.is_running:
                client.process.kill()
            client.process.wait()
