"""A broker in the test's own event loop that answers from a script: functions by API key, from
request entity to response values.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Self

from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.processes.ports import free_port
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.streams import frames
from wire.protocol.streams.frames import RequestHeader, VersionRange

Script = Callable[[Any, RequestHeader], Any]
API_VERSIONS = schemas.API_VERSIONS_KEY
NO_TIME = dt.timedelta(0)


class ScriptedBroker:
    """Use as `async with ScriptedBroker() as broker`; set `broker.scripts[api_key]` to a function
    of request and header.

    A script returns the response's values (see `build_entity`), bytes to send as they are, pieces
    of bytes as an asynchronous iterator, or None for no answer; it may be a coroutine.
    """

    def __init__(self, versions: Mapping[int, VersionRange] | None = None) -> None:
        self.versions = dict(versions or {})
        self.scripts: dict[int, Script] = {API_VERSIONS: self._answer_versions}
        self.seen: list[tuple[RequestHeader, Any]] = []
        self.connection_count = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = HostPort("127.0.0.1", 0)

    @property
    def open_count(self) -> int:
        """Connections that are open."""
        return len(self._writers)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, at the same port as before if there was one: no other process can get that while
        no broker listens there.
        """
        if self.address.port == 0:
            self.address = self.address._replace(port=free_port())
        self._server = await asyncio.start_server(self._serve, *self.address)
        self.address = HostPort(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.transport.abort()

    def on(self, api_key: int, script: Script, versions: VersionRange | None = None) -> None:
        """Answer an API, and advertise it."""
        known = schemas.schema_versions(api_key)
        assert known is not None
        self.versions[api_key] = versions or VersionRange(*known)
        self.scripts[api_key] = script

    def requests(self, api_key: int) -> list[Any]:
        """The request entities of an API, in the order in which they came."""
        return [request for header, request in self.seen if header.api_key == api_key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connection_count += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                await self._answer(frame, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = frames.parse_request_header(frame)
        request = frames.decode_request_body(frame, header)
        self.seen.append((header, request))
        answer = self.scripts[header.api_key](request, header)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            return
        if isinstance(answer, AsyncIterator):
            async for piece in answer:
                writer.write(piece)
            return
        if not isinstance(answer, bytes):
            entity = build_entity(schemas.response_type(header.api_key, header.api_version), answer)
            answer = frames.encode_response(header.api_key, header.api_version, header.correlation_id, entity)
        writer.write(answer)
        await writer.drain()

    def _answer_versions(self, request: Any, header: RequestHeader) -> dict[str, Any]:
        offered = {API_VERSIONS: VersionRange(0, 3), **self.versions}
        return versions_answer(offered)


def late(values: Mapping[str, Any], *, delay_ms: float) -> Script:
    """A script that answers with the same values, so long after each request."""

    async def answer(request: Any, header: RequestHeader) -> Mapping[str, Any]:
        await asyncio.sleep(delay_ms / 1000)
        return values

    return answer


async def in_pieces(answer: bytes, *, lasting_s: float) -> AsyncIterator[bytes]:
    """An answer that comes byte by byte for about so long, then whole."""
    loop = asyncio.get_running_loop()
    until_s, sent = loop.time() + lasting_s, 0
    while loop.time() < until_s and sent < len(answer) - 1:
        yield answer[sent : sent + 1]
        sent += 1
        await asyncio.sleep(0.01)
    yield answer[sent:]


def versions_answer(offered: Mapping[int, VersionRange], error_code: int = 0) -> dict[str, Any]:
    """Values of an ApiVersions response."""
    keys = [
        {"api_key": key, "min_version": versions.lowest, "max_version": versions.highest}
        for key, versions in offered.items()
    ]
    return {"error_code": ErrorCode(error_code), "api_keys": keys, "throttle_time": NO_TIME}
