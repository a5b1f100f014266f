"""Broker configs that were altered while brokers run, where Kafka keeps them:
`/config/brokers/<default>` and `/config/brokers/<id>`.

Every broker watches the two nodes that concern it, so that a change reaches all of them however it
was made; after a lost session they are read again. Writes are conditional on the version that was
read.

Callers: broker/site/membership.py owns one, broker/main.py follows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError
from kazoo.protocol.states import WatchedEvent

from runtime.logs import get_logger
from runtime.retries import jittered_backoff
from runtime.supervision import Supervisor
from runtime.zookeeper.client import ZooKeeper, until_answered
from runtime.zookeeper.sessions import SessionState
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import decode_config, encode_topic_config
from wire.znodes.documents import MalformedZnode

log = get_logger(__name__)

Stored = dict[str, str]
Change = Callable[[Mapping[str, str]], Stored]
Taker = Callable[[Mapping[str, str], Mapping[str, str]], None]

READ_AGAIN_MS_MAX = 5_000


class ConfigStoreUnavailable(Exception):
    """The store could not be read or written; the message says why."""


class BrokerConfigStore(Protocol):
    """The store of altered broker configs (tests have one in memory)."""

    async def follow(self, take: Taker) -> None:
        """Call `take(for all, for this broker)` now and after every change."""
        ...

    async def change(self, name: str, change: Change) -> None:
        """Replace what is stored for a broker id, or for all ("") by what `change` makes of it;
        listeners of `follow` are called before it returns.
        """
        ...


class ZooKeeperConfigStore:
    """The two nodes of one broker."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int) -> None:
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._take: Taker | None = None
        self._is_stale = asyncio.Event()
        self._reading = asyncio.Lock()
        self._loops = Supervisor()

    async def follow(self, take: Taker) -> None:
        """Read both nodes, and again whenever one changes or a session is new."""
        self._take = take
        await until_answered(lambda: self._zookeeper.ensure_path(znodes.BROKER_CONFIGS))
        await until_answered(self._read)
        self._loops.start("broker configs", self._read_again_and_again)
        self._zookeeper.on_session(self._on_session)

    async def _read(self) -> None:
        assert self._take is not None
        # Reads run one after the other: the result of an older read must not replace that of a
        # newer one.
        async with self._reading:
            for_all = await self._stored("")
            for_this = await self._stored(str(self._node_id))
            self._take(for_all, for_this)

    async def _stored(self, name: str) -> Stored:
        path = znodes.broker_config_path(name)
        found = await self._zookeeper.get_or_none(path, watch=self._on_changed)
        if found is None:
            return {}
        try:
            return decode_config(path, found[0])
        except MalformedZnode as error:
            log.warning("malformed broker configs in ZooKeeper are ignored", reason=str(error))
            return {}

    def _on_changed(self, _: WatchedEvent) -> None:
        self._is_stale.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._is_stale.set()

    async def _read_again_and_again(self) -> None:
        while True:
            await self._is_stale.wait()
            async for attempt in jittered_backoff(retry_on=KazooException, initial_ms=100, max_ms=READ_AGAIN_MS_MAX):
                with attempt:
                    self._is_stale.clear()
                    try:
                        await self._read()
                    except BaseException:
                        self._is_stale.set()
                        raise

    async def change(self, name: str, change: Change) -> None:
        """Read, change and write, again when another broker was quicker. ConfigStoreUnavailable."""
        path = znodes.broker_config_path(name)
        try:
            while not await self._try_change(path, change):
                pass
            await self._read()
        except KazooException as error:
            raise ConfigStoreUnavailable(f"ZooKeeper: {type(error).__name__}") from error
        except MalformedZnode as error:
            raise ConfigStoreUnavailable(str(error)) from error

    async def _try_change(self, path: str, change: Change) -> bool:
        found = await self._zookeeper.get_or_none(path)
        stored = {} if found is None else decode_config(path, found[0])
        payload = encode_topic_config(change(stored))
        try:
            if found is None:
                await self._zookeeper.create(path, payload, make_path=True)
            else:
                await self._zookeeper.set(path, payload, version=found[1].version)
        except (BadVersionError, NodeExistsError):
            return False
        return True

    async def stop(self) -> None:
        """Stop watching."""
        await self._loops.stop()
