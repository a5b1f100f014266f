"""Reads request bodies within limits: of one body, of all bodies together, and of the time that a
client may take.

If there is no memory for a body, the bridge refuses it at once: bodies that waited while holding
memory could all wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from bridge.core.refusals import Refused, too_large, too_many


class BodyRoom:
    """Bytes of bodies that are in memory."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0

    def take(self, amount: int) -> None:
        """Count them. Raises Refused if there is no memory for the body."""
        if self.used_bytes + amount > self.size_bytes:
            raise too_many("The bridge has as many request bodies in memory as it may; try again.")
        self.used_bytes += amount

    def give_back(self, amount: int) -> None:
        """They are gone."""
        self.used_bytes -= amount


class Bodies:
    """Reads bodies."""

    def __init__(self, *, body_bytes_max: int, all_bytes_max: int, client_timeout_ms: int, silence_ms: int) -> None:
        self.room = BodyRoom(all_bytes_max)
        self._body_bytes_max = body_bytes_max
        self._timeout_s = client_timeout_ms / 1000
        self._silence_s = silence_ms / 1000

    @asynccontextmanager
    async def whole(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body; its memory is counted until the block ends. Raises Refused: 413 if the
        body is too large, 408 if it does not arrive in time, 429 without memory.
        """
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._body_bytes_max:
            raise too_large(self._body_bytes_max)
        body = bytearray()
        try:
            await self._gather(request, body)
            yield bytes(body)
        finally:
            self.room.give_back(len(body))

    async def _gather(self, request: Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                async for piece in request.stream():
                    if len(body) + len(piece) > self._body_bytes_max:
                        raise too_large(self._body_bytes_max)
                    self.room.take(len(piece))
                    body += piece
        except TimeoutError as error:
            raise _too_slow() from error

    async def pieces(self, request: Request, *, until: asyncio.Event) -> AsyncIterator[bytes]:
        """The pieces of the body as they arrive; ends also when the client disconnects or `until`
        is set. Refused if the client sends no byte of the body for too long.
        """
        receiving = request.stream().__aiter__()
        ending = asyncio.ensure_future(until.wait())
        try:
            while True:
                next_piece = asyncio.ensure_future(anext(receiving))
                await asyncio.wait({next_piece, ending}, timeout=self._silence_s, return_when=asyncio.FIRST_COMPLETED)
                if not next_piece.done():
                    next_piece.cancel()
                    await asyncio.gather(next_piece, return_exceptions=True)
                    if ending.done():
                        return
                    raise _too_slow()
                try:
                    piece = next_piece.result()
                except (StopAsyncIteration, ClientDisconnect):
                    return
                if piece:
                    yield piece
        finally:
            ending.cancel()


def _too_slow() -> Refused:
    return Refused(408, 408, "The body did not arrive within the time limit.")
