"""Limits of a broker's connections, and the addresses of host names that have their own limits.

Like Kafka, `HostAddresses` resolves names in `max.connections.per.ip.overrides` when they are
configured, not for each connection. An unknown name is a configuration error when the broker
starts; later it is logged and its limit has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from broker.settings.config import BrokerSettings
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.supervision import in_background

log = get_logger(__name__)

KEY: Final = "max.connections.per.ip.overrides"


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """The named bounds of a broker's connections; see `broker/settings/config.py` for Kafka's keys.
    Overrides are by address, never by name.
    """

    request_bytes_max: int
    connections_max: int
    connections_per_address_max: int
    connections_per_address_overrides: Mapping[str, int]
    connection_creation_rate_max: int
    idle_ms_max: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    failed_logins_max: int
    failed_logins_window_ms: int


class HostAddresses:
    """The resolved addresses of hosts that have limits of their own."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, ...]] = {}
        self._looking: asyncio.Task[None] | None = None

    def limits(self, settings: BrokerSettings) -> ConnectionLimits:
        """The bounds, with those of hosts whose addresses are known."""
        overrides = settings.connections_per_address_overrides
        return ConnectionLimits(
            request_bytes_max=settings.request_bytes_max,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            connections_per_address_overrides={
                address: count for host, count in overrides.items() for address in self._addresses(host)
            },
            connection_creation_rate_max=settings.connection_creation_rate_max,
            idle_ms_max=settings.connection_idle_ms_max,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            failed_logins_max=settings.failed_logins_max,
            failed_logins_window_ms=settings.failed_logins_window_ms,
        )

    async def look_up(self, hosts: Iterable[str]) -> None:
        """Find the addresses of hosts that are names. ConfigurationError when there are none."""
        for host in hosts:
            # once for each host: connections are matched by address, and no lookup may delay a new
            # one
            if not self._addresses(host):
                self._found[host] = await _looked_up(host)

    def look_up_later(self, hosts: Iterable[str], then: Callable[[], None]) -> None:
        """Find what is not known yet in the background, and call `then` if there was something."""
        unknown = [host for host in hosts if not self._addresses(host)]
        self.stop()
        if unknown:
            self._looking = in_background("host addresses", self._look_up_each(unknown, then))

    async def _look_up_each(self, hosts: Iterable[str], then: Callable[[], None]) -> None:
        for host in hosts:
            try:
                await self.look_up([host])
            except ConfigurationError as error:
                log.warning("connection limit of a host has no effect", key=KEY, host=host, reason=str(error))
        # once for all hosts, also when some have no address
        then()

    def _addresses(self, host: str) -> tuple[str, ...]:
        literal = _literal(host)
        return (literal,) if literal else self._found.get(host, ())

    def stop(self) -> None:
        """Look for nothing more."""
        if self._looking is not None:
            self._looking.cancel()


def _literal(host: str) -> str | None:
    """The address that the text is, as sockets spell it; None for a name."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


async def _looked_up(host: str) -> tuple[str, ...]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            KEY, host, f"the host name has no address ({error}); accepted: host:count[,host:count...]"
        ) from error
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))
