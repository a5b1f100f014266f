"""A read that arrives while the bridge stops."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from bridge.access.logins import HttpPrincipal
from bridge.bodies import Bodies
from bridge.consumer_instance import ConsumerInstance
from bridge.core.media_types import EmbeddedFormat
from bridge.gate import CALLER, Caller
from bridge.v2_consumers import V2Consumers
from tests.support.eventually import eventually


class NobodyProduces:
    """A consumer to whom no record comes."""

    def assignment(self) -> list[Any]:
        return []

    def poll(self, timeout_s: float) -> None:
        return None


async def test_a_read_that_has_not_begun_when_the_bridge_stops_ends_at_once() -> None:
    with ThreadPoolExecutor(1) as executor:
        consumer: Any = NobodyProduces()
        instance = ConsumerInstance(
            group="g",
            name="i",
            embedded=EmbeddedFormat.JSON,
            consumer=consumer,
            executor=executor,
            read_timeout_ms=600_000,
            fetch_min_bytes=-1,
        )
        parts: Any = SimpleNamespace(
            bodies=Bodies(body_bytes_max=1024, all_bytes_max=1024, client_timeout_ms=60_000, silence_ms=60_000),
            consumers=SimpleNamespace(find=lambda *_: instance),
            settings=SimpleNamespace(read_bytes_max=1024),
            metrics=SimpleNamespace(record_consumed=lambda **counts: None),
            stopping=asyncio.Event(),
        )
        instance._mode = "topics"
        user: Any = SimpleNamespace(consumer_properties={})
        routes = Starlette(routes=V2Consumers(parts).routes())

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await routes({**scope, CALLER: Caller(HttpPrincipal("anna"), user)}, receive, send)

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            async with instance._at_consumer:  # it is being tended
                reading = asyncio.create_task(client.get("/consumers/g/instances/i/records"))
                await eventually(lambda: instance.is_busy)
                parts.stopping.set()
                instance.interrupt_read()
            try:
                await eventually(reading.done)
            finally:
                instance.interrupt_read()
            assert (await reading).json() == []
