"""The other brokers of this site, for requests to them: one connection each, opened at the first
use.

Uses the listener that `inter.broker.listener.name` names, otherwise a broker's first listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.authentication.inter_broker import Secured, plaintext
from broker.metadata.core.cluster_image import ClusterImage
from runtime.addresses import HostPort
from wire.client.client_errors import Unreachable
from wire.client.connection import Connection, ConnectionOptions
from wire.client.connection_pool import ConnectionPool

CLIENT_ID: Final = "antipode-peer-broker"
TIMEOUT_MS: Final = 10_000
IN_FLIGHT_MAX: Final = 32


class PeerBrokers:
    """The connections to the other brokers of the site."""

    def __init__(self, image: Callable[[], ClusterImage], listener: str, secured: Secured = plaintext) -> None:
        self._image = image
        self._listener = listener
        options = ConnectionOptions(client_id=CLIENT_ID, request_timeout_ms=TIMEOUT_MS, in_flight_max=IN_FLIGHT_MAX)
        self._pool = ConnectionPool(options, secured)

    async def call(self, node_id: int, api_key: int, values: Mapping[str, Any], *, version: int) -> Any:
        """One request to a broker of this site; the response entity. KafkaClientError."""
        connection = await self.connection(node_id)
        shared = connection.version_for(api_key, highest=version)
        return await connection.call(api_key, values, version=shared)

    async def connection(self, node_id: int) -> Connection:
        """The connection to a broker of this site. Raises Unreachable."""
        return await self._pool.get(self._address(node_id))

    def _address(self, node_id: int) -> HostPort:
        broker = self._image().brokers.get(node_id)
        endpoints = {} if broker is None else {end.listener: HostPort(end.host, end.port) for end in broker.endpoints}
        address = endpoints.get(self._listener) or next(iter(endpoints.values()), None)
        if address is None:
            raise Unreachable("the address of this broker is unknown", node=f"node {node_id}")
        return address

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()
