"""`tests/support/lone_brokers/lone_broker.py` with flushes that a test can see and hold:
`python -m tests.support.lone_brokers.held_flushes key=value...`.

Each fdatasync of a file is noted in `begun` before it happens, one path a line. While the file
`held` exists, an fdatasync of a path that contains its text does not come to its end. Both files
are in the folder that FLUSHES_VARIABLE names.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from broker.assembly.doors import Doors
from runtime.disk import RealDisk
from tests.support.lone_brokers.lone_broker import run_from_command_line

FLUSHES_VARIABLE = "ANTIPODE_TEST_FLUSHES"
PAUSE_S = 0.01


class Flushes:
    """The test's side and the broker's side of the folder."""

    def __init__(self, folder: Path) -> None:
        self._begun, self._held = folder / "begun", folder / "held"

    def hold(self, text: str) -> None:
        """From now on no flush of such a path ends."""
        self._held.write_text(text, encoding="utf-8")

    def release(self) -> None:
        """All go on."""
        self._held.unlink()

    def begun(self, text: str) -> list[str]:
        """Paths with this text whose flushes have begun, in order."""
        if not self._begun.exists():
            return []
        return [path for path in self._begun.read_text(encoding="utf-8").splitlines() if text in path]

    def note_and_wait(self, path: str) -> None:
        """The broker's side."""
        with self._begun.open("a", encoding="utf-8") as begun:
            begun.write(f"{path}\n")
        while self._is_held(path):
            time.sleep(PAUSE_S)

    def _is_held(self, path: str) -> bool:
        try:
            return self._held.read_text(encoding="utf-8") in path
        except FileNotFoundError:
            return False


class HeldDisk(RealDisk):
    """A disk whose flushes a test can see and hold."""

    def __init__(self, flushes: Flushes) -> None:
        self._flushes = flushes

    def fdatasync(self, descriptor: int) -> None:  # type: ignore[override]
        """Make the file durable once the test allows it."""
        self._flushes.note_and_wait(os.readlink(f"/proc/self/fd/{descriptor}"))
        os.fdatasync(descriptor)


if __name__ == "__main__":
    run_from_command_line(Doors(disk=HeldDisk(Flushes(Path(os.environ[FLUSHES_VARIABLE])))))
