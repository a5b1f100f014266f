"""The link's byte rate: fetchers wait here for bytes, those of the lower rank first."""

from __future__ import annotations

import asyncio

from clients.core.line import Line
from mirror.flow.core.priorities import TokenBucket
from runtime.clock import Clock


class _Waiter:
    """A waiting fetch, and its expected size."""

    def __init__(self, expected_bytes: int) -> None:
        self.expected_bytes = expected_bytes
        self.may_go: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Throttle:
    """The byte rate limit of all fetchers of a mirror. A fetch spends its expected bytes when it is
    sent, and the difference when its response arrives. So the next fetch waits for the bytes and
    not for the response, which an idle long poll may delay.
    """

    def __init__(self, clock: Clock, *, bytes_per_second: int) -> None:
        self._clock = clock
        self._bucket = TokenBucket(bytes_per_second=bytes_per_second, now_ms=clock.monotonic_ms())
        self._line: Line[_Waiter] = Line()
        self._timer: asyncio.TimerHandle | None = None
        self.waited_ms = 0.0

    def wait_for_turn(self, rank: int, expected_bytes: int) -> bool:
        """Let a fetch pass if it need not wait."""
        if self._line.has_before(rank) or not self._bucket.is_open(self._clock.monotonic_ms()):
            return False
        self.spend(expected_bytes)
        return True

    async def turn(self, rank: int, expected_bytes: int) -> None:
        """Wait until a fetch of this rank may go."""
        if self.wait_for_turn(rank, expected_bytes):
            return
        began_ms = self._clock.monotonic_ms()
        waiter = _Waiter(expected_bytes)
        self._line.join(rank, waiter)
        self._arm()
        try:
            await waiter.may_go
        except asyncio.CancelledError:
            # The waiter was cancelled after its grant, so its bytes are returned to the others.
            if not waiter.may_go.cancelled():
                self.spend(-expected_bytes)  # granted, but the waiter was cancelled
            raise
        finally:
            self._line.leave(waiter)
            self.waited_ms += self._clock.monotonic_ms() - began_ms

    def spend(self, size_bytes: int) -> None:
        """Record fetched bytes; a negative number corrects an expectation that was too high."""
        self._bucket.spend(size_bytes, self._clock.monotonic_ms())
        if size_bytes < 0 and self._timer is not None:
            # The timer assumes the expected bytes: a waiter may go sooner now.
            self._timer.cancel()
            self._timer = None
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and len(self._line):
            delay_s = self._bucket.opens_in_ms(self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._grant)

    def _grant(self) -> None:
        self._timer = None
        candidates = self._line.candidates()
        if candidates and self._bucket.is_open(self._clock.monotonic_ms()):
            _, waiter = candidates[0]
            self._line.serve(waiter)
            # A cancelled waiter is still in the line.
            if not waiter.may_go.done():
                self.spend(waiter.expected_bytes)
                waiter.may_go.set_result(None)
        self._arm()
