"""The bridge as a daemon: it starts its parts in order, and a stop still answers all accepted
requests. `cli/processes/daemons.py` calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

from bridge.access.kafka_users import KafkaUsers
from bridge.access.logins import Logins
from bridge.access.security import BridgeSecurity, load_bridge_security
from bridge.app import make_app
from bridge.bodies import Bodies
from bridge.config import BridgeSettings, load_bridge_settings
from bridge.consumers import Consumers
from bridge.core.rates import Rate
from bridge.http_server import HttpServer
from bridge.metrics import BridgeMetrics
from bridge.parts import Parts
from runtime.addresses import HostPort
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.metrics import MetricsServer, new_registry
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.tls.reloading import ListenerCertificates

log = get_logger(__name__)


class Bridge:
    """One bridge. `start` returns when the bridge serves; `stop` answers accepted requests and
    closes everything.
    """

    def __init__(self, settings: BridgeSettings, security: BridgeSecurity) -> None:
        """Raises ConfigurationError when a file that the security names cannot be used."""
        self._settings = settings
        self._registry = new_registry()
        metrics = BridgeMetrics(self._registry)
        bodies = Bodies(
            body_bytes_max=settings.request_bytes_max,
            all_bytes_max=settings.bodies_bytes_max,
            client_timeout_ms=settings.client_timeout_ms,
            silence_ms=settings.idle_timeout_ms,
        )
        self._users = KafkaUsers(settings, security, metrics)
        self._logins = Logins(security, settings, metrics)
        self._loops = Supervisor()
        self._parts = Parts(
            settings=settings,
            metrics=metrics,
            users=self._users,
            consumers=Consumers(settings, metrics),
            bodies=bodies,
            records_rate=Rate(settings.produce_requests_per_second),
            bytes_rate=Rate(settings.produce_bytes_per_second),
            stopping=asyncio.Event(),
        )
        metrics.add_gauge("bodies_bytes", lambda: bodies.room.used_bytes)
        metrics.add_gauge("unacknowledged_bytes", lambda: self._users.room.used_bytes)
        certificates = None if security.tls is None else ListenerCertificates(security.tls, listener="bridge")
        self._http = HttpServer(make_app(self._parts, self._logins), settings, metrics, certificates)
        self._running = AsyncExitStack()

    async def start(self) -> tuple[HostPort, ...]:
        """Start metrics and HTTP; return the HTTP address. Raises ConfigurationError when an
        address cannot be had.
        """
        try:
            self._serve_metrics()
            self._running.callback(self._logins.stop)
            self._loops.start("keys of tokens", self._logins.keep_keys_read)
            self._running.push_async_callback(self._loops.stop)
            self._users.start()
            self._running.push_async_callback(self._stop_users)
            self._parts.consumers.start()
            self._running.push_async_callback(self._parts.consumers.stop)
            addresses = await self._http.start()
            self._running.push_async_callback(self._stop_http)
        except BaseException:
            await self._running.aclose()
            raise
        scheme = self._settings.scheme
        log.info("serving", listeners=",".join(f"{scheme}://{address}" for address in addresses))
        return addresses

    async def until_failed(self, stop: asyncio.Event) -> bool:
        """Wait until `stop` is set (returns False), or until the HTTP server ended unexpectedly."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([stopping, self._http.serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        return not stop.is_set()

    async def stop(self) -> None:
        """Answer running requests, let consumers leave their groups, and acknowledge accepted
        records.
        """
        await self._running.aclose()

    async def _stop_http(self) -> None:
        self._parts.stopping.set()
        self._parts.consumers.interrupt_reads()
        await self._http.stop()

    async def _stop_users(self) -> None:
        left = await self._users.stop(within_ms=self._settings.shutdown_timeout_ms)
        if left:
            log.warning("records were left without an acknowledgement", records=left)

    def _serve_metrics(self) -> None:
        listener = self._settings.metrics_listener
        if listener is None:
            return
        server = MetricsServer(self._registry, host=listener.host, port=listener.port)
        try:
            server.start()
        except OSError as error:
            accepted = f"an address that can be bound ({error.strerror})"
            raise ConfigurationError("antipode.metrics.listener", str(listener), accepted) from error
        self._running.callback(server.stop)


async def run_bridge(properties: Mapping[str, str], stop: asyncio.Event) -> None:
    """Run a bridge until `stop` is set. Raises ConfigurationError, which names the wrong setting,
    or OperationalFailure, which says why the bridge cannot continue.
    """
    settings = load_bridge_settings(properties)
    bridge = Bridge(settings, load_bridge_security(properties, settings))
    await bridge.start()
    has_failed = await bridge.until_failed(stop)
    log.info("stopping")
    await bridge.stop()
    if has_failed:
        raise OperationalFailure("the bridge's HTTP server ended by itself; the log has the cause")
