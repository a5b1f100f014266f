"""Follows a value in ZooKeeper: read with a watch, deliver, wait for the watch, read again.

ZooKeeper's watches fire once and do not contain the change, so each round reads the whole value,
and the controller compares it with its own. No change is lost; a reverted change costs only a
comparison. A watch also fires when the connection breaks; the next read then waits until it is
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from kazoo.exceptions import KazooException
from kazoo.protocol.states import WatchedEvent

from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.zookeeper.handler import Watch
from wire.znodes.documents import MalformedZnode

Value = TypeVar("Value")

_log = get_logger(__name__)


def setter(event: asyncio.Event) -> Watch:
    """A watch that sets the event."""

    def on_change(_: WatchedEvent) -> None:
        event.set()

    return on_change


async def follow(read: Callable[[Watch], Awaitable[Value]], deliver: Callable[[Value], Awaitable[None]]) -> None:
    """Deliver the value now and after every change, until cancelled. A value that cannot be decoded
    is logged and skipped: the last good one stays in force until the value is repaired.
    """
    while True:
        changed = asyncio.Event()
        try:
            await deliver(await until_answered(partial(read, setter(changed))))
        except MalformedZnode as error:
            _log.error("malformed change in ZooKeeper is not applied", problem=str(error))
        await changed.wait()


async def until_answered(read: Callable[[], Awaitable[Value]]) -> Value:
    """Read again until ZooKeeper answers, or until cancelled: a lost session ends the tenure."""
    async for attempt in jittered_backoff(retry_on=KazooException, initial_ms=20, max_ms=500):
        with attempt:
            return await read()
    raise AssertionError("retrying without a bound ended")
