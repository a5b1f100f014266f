"""Finds code that blocks an event loop: turns in which the loop's thread worked for long, with the
stacks that were seen meanwhile.

Counts the processor time of the loop's own thread, so that a busy machine does not look like a slow
program; the difference to the time on the wall is the thread's waiting (for a disk, for the
interpreter's lock).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

BEAT_S: Final = 0.002
SAMPLE_S: Final = 0.001
FRAMES_MAX: Final = 9


@dataclass(slots=True)
class Holds:
    """The findings so far; call `start` once, on the loop."""

    least_ms: float = 5.0
    worked_ms: list[tuple[float, float]] = field(default_factory=list)
    """Of each long turn the processor time of the loop's thread, and the time on the wall."""
    stacks: Counter[str] = field(default_factory=Counter)
    """Samples of 1 ms in turns that were already long, by stack."""
    collections_ms: list[tuple[int, float]] = field(default_factory=list)
    """Generation and duration of each garbage collection of a millisecond or more, whichever thread
    it held: it holds all of them.
    """
    _beat_s: float = 0.0
    _collection_began_s: float = 0.0

    def start(self) -> None:
        """Watch the running loop until the process ends."""
        self._beat_s = time.monotonic()
        ident = threading.get_ident()
        gc.callbacks.append(self._note_collection)
        threading.Thread(target=self._watch, args=(ident,), daemon=True).start()
        self._beat(asyncio.get_running_loop(), time.monotonic(), time.thread_time())

    def clear(self) -> None:
        """Begin anew."""
        self.worked_ms.clear()
        self.stacks.clear()
        self.collections_ms.clear()

    def _beat(self, loop: asyncio.AbstractEventLoop, began_s: float, worked_s: float) -> None:
        now_s, now_worked_s = time.monotonic(), time.thread_time()
        if (now_worked_s - worked_s) * 1000 >= self.least_ms or (now_s - began_s) * 1000 >= 2 * self.least_ms:
            self.worked_ms.append(((now_worked_s - worked_s) * 1000, (now_s - began_s) * 1000))
        self._beat_s = now_s
        loop.call_later(BEAT_S, self._beat, loop, now_s, now_worked_s)

    def _note_collection(self, phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.monotonic()
            return
        took_ms = (time.monotonic() - self._collection_began_s) * 1000
        if took_ms >= 1:
            self.collections_ms.append((details["generation"], took_ms))

    def _watch(self, ident: int) -> None:
        while True:
            time.sleep(SAMPLE_S)
            if (time.monotonic() - self._beat_s) * 1000 >= self.least_ms:
                self.stacks[_stack(sys._current_frames().get(ident))] += 1


def _stack(frame: FrameType | None) -> str:
    frames = traceback.extract_stack(frame)[-FRAMES_MAX:] if frame else []
    return " < ".join(f"{'/'.join(one.filename.split('/')[-2:])}:{one.lineno} {one.name}" for one in reversed(frames))
