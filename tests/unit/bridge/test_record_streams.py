"""The answer to a stream of records ends after any failure to read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from bridge.access.logins import HttpPrincipal
from bridge.bodies import BodyRoom
from bridge.gate import CALLER, Caller
from bridge.v3_records import _RecordStream


class Broken:
    """Bodies that a defect of the bridge prevents it from reading."""

    def __init__(self) -> None:
        self.room = BodyRoom(1 << 20)

    async def pieces(self, request: Request, *, until: asyncio.Event) -> AsyncIterator[bytes]:
        """Yields a piece, and then raises the defect."""
        yield b" "
        raise LookupError("a defect")


async def _no_throttle(_: object) -> None:
    pass


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"2")]])
async def test_a_stream_whose_reading_dies_is_broken_off_and_waits_for_nothing(headers: list[Any]) -> None:
    user: Any = None
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": headers,
        CALLER: Caller(HttpPrincipal("anna"), user),
    }
    settings = SimpleNamespace(record_bytes_max=1 << 20, stream_records_max=10)
    parts: Any = SimpleNamespace(settings=settings, bodies=Broken(), stopping=asyncio.Event(), throttle=_no_throttle)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is received here")

    answer = _RecordStream(parts, Request(scope), cluster="c", topic="t")
    with pytest.raises(LookupError):
        await asyncio.wait_for(answer(scope, receive, send), 10)
    assert not any(message["type"] == "http.response.body" and not message.get("more_body") for message in sent)
