"""Connections by broker address: opened when first used, shared, opened again after a loss with
jittered backoff.

After a failed attempt the next one to the same address waits a random time below a bound that
doubles up to a maximum. So callers may retry at once, and a restarted broker is not flooded.
Callers that wait share one attempt, and its failure: one after the other, each would wait for the
time that connecting may take.
"""

import asyncio
from collections.abc import Callable

from runtime.addresses import HostPort
from runtime.chance import jitter
from wire.client.client_errors import KafkaClientError, Unreachable
from wire.client.connection import Connection, ConnectionOptions, open_connection

BACKOFF_INITIAL_MS = 50
BACKOFF_MAX_MS = 2_000
# 2 to the 10th: beyond it the maximum counts in any case
_DOUBLINGS_MAX = 10


class _Place:
    """One address: its connection, and how often connecting has failed in a row."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.opening = asyncio.Lock()
        self.failures = 0
        # Why the last failed attempt has failed.
        self.failure: KafkaClientError | None = None


class ConnectionPool:
    """At most one open connection for each address."""

    def __init__(
        self,
        options: ConnectionOptions,
        secured: Callable[[ConnectionOptions, HostPort], ConnectionOptions] | None = None,
    ) -> None:
        """`secured` gives the options for an address when a connection is opened; it may raise
        Unreachable.
        """
        self._options = options
        self._secured = secured
        self._places: dict[HostPort, _Place] = {}
        self._is_closed = False

    async def get(self, address: HostPort) -> Connection:
        """An open connection. Raises Unreachable after one attempt, which may have waited for
        earlier ones.
        """
        place = self._places.setdefault(address, _Place())
        if place.connection is not None and place.connection.is_open:
            return place.connection
        before = place.failure
        async with place.opening:
            if self._is_closed:
                raise Unreachable("the client is closed", node=str(address))
            # another caller may have opened it while this one waited for the lock
            if place.connection is not None and place.connection.is_open:
                return place.connection
            failure = place.failure
            if failure is not None and failure is not before:
                raise Unreachable(failure.detail, node=failure.node, api_key=failure.api_key)
            place.connection = await self._open(address, place)
            return place.connection

    def open_addresses(self) -> list[HostPort]:
        """Addresses with an open connection."""
        return [
            address
            for address, place in self._places.items()
            if place.connection is not None and place.connection.is_open
        ]

    def drop(self, address: HostPort, reason: str) -> None:
        """Close the connection to `address`; the next `get` opens another."""
        place = self._places.get(address)
        if place is not None and place.connection is not None:
            place.connection.close(reason)

    async def close(self) -> None:
        """Close all connections and refuse new ones."""
        self._is_closed = True
        for address in self._places:
            self.drop(address, "the client was closed")
        # Transports report their end in the loop's next iteration; a caller may stop the loop right
        # after.
        await asyncio.sleep(0)

    async def _open(self, address: HostPort, place: _Place) -> Connection:
        if place.failures:
            bound_ms = min(BACKOFF_MAX_MS, BACKOFF_INITIAL_MS * 2 ** min(place.failures - 1, _DOUBLINGS_MAX))
            await asyncio.sleep(jitter().uniform(0, bound_ms) / 1000)
        try:
            options = self._options if self._secured is None else self._secured(self._options, address)
            connection = await open_connection(address, options)
        except KafkaClientError as error:
            place.failures += 1
            place.failure = error
            raise
        place.failures = 0
        # `close` came during the attempt, and could not close what was not there yet
        if self._is_closed:
            connection.close("the client was closed")
            raise Unreachable("the client is closed", node=str(address))
        return connection
