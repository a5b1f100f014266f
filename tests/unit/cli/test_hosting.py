"""A whole broker process: what ends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from broker.main import Broker
from cli.hosting import until_ready
from runtime.process import OperationalFailure


def _starting() -> Broker:
    return cast("Broker", SimpleNamespace(ready=asyncio.Event(), failed=asyncio.Event()))


async def test_a_broker_whose_last_directory_fails_while_it_starts_ends() -> None:
    broker = _starting()
    starting = asyncio.create_task(until_ready(broker))
    await asyncio.sleep(0)
    broker.failed.set()
    await asyncio.wait([starting], timeout=5)
    assert starting.done()
    with pytest.raises(OperationalFailure, match="every log directory has failed"):
        starting.result()


async def test_a_broker_that_lets_clients_in_has_started() -> None:
    broker = _starting()
    starting = asyncio.create_task(until_ready(broker))
    broker.ready.set()
    await asyncio.wait([starting], timeout=5)
    assert starting.done()
    starting.result()
