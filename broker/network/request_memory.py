"""Buffers for large request frames, under one bound across all connections; small ones never come
here.

Buffers up to a few megabytes are kept and used again, so that a steady flow of large requests
neither allocates nor touches new memory. Used by connections.py.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Final, Protocol

POOLED_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
POOLED_BYTES_MAX: Final = 24 * 1024 * 1024  # of all sizes together


class MemoryWaiter(Protocol):
    """A connection that waits for memory."""

    def memory_freed(self) -> None:
        """Note that memory may be free again."""
        ...


class RequestMemory:
    """Buffers for large frames with a common bound; connections without memory wait in order of
    arrival.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._pool: dict[int, list[bytearray]] = {}
        self._pooled_bytes = 0
        self._waiting: deque[MemoryWaiter] = deque()

    @property
    def waiting_count(self) -> int:
        """Connections that wait for room."""
        return len(self._waiting)

    def take(self, size: int) -> memoryview | None:
        """A buffer of exactly `size` bytes, None when the bound is reached (one frame is always
        admitted).
        """
        # a frame above the bound is admitted alone: no connection may wait for ever
        if self.used_bytes and self.used_bytes + size > self.bytes_max:
            return None
        self.used_bytes += size
        if size > POOLED_BUFFER_BYTES_MAX:
            # Anonymous memory costs nothing until bytes arrive: a claimed size is not yet memory.
            return memoryview(mmap.mmap(-1, size))[:size]
        # powers of two: buffers of neighbouring sizes serve each other
        capacity = 1 << (size - 1).bit_length()
        free = self._pool.get(capacity)
        if free:
            self._pooled_bytes -= capacity
            return memoryview(free.pop())[:size]
        return memoryview(bytearray(capacity))[:size]

    def wait(self, connection: MemoryWaiter) -> None:
        """Call the connection's `memory_freed` when there may be memory; a connection that tried
        again meanwhile keeps its position.
        """
        if connection not in self._waiting:
            self._waiting.append(connection)

    def give_back(self, view: memoryview) -> None:
        """Return a buffer; no view of it may be in use."""
        size, owner = view.nbytes, view.obj
        view.release()
        self.used_bytes -= size
        if isinstance(owner, bytearray) and self._pooled_bytes + len(owner) <= POOLED_BYTES_MAX:
            self._pool.setdefault(len(owner), []).append(owner)
            self._pooled_bytes += len(owner)
        # all of them: which request fits is only known when it tries
        for _ in range(len(self._waiting)):
            self._waiting.popleft().memory_freed()

    def forget(self, connection: MemoryWaiter) -> None:
        """The connection closed while waiting."""
        if connection in self._waiting:
            self._waiting.remove(connection)
