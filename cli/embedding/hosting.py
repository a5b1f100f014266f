"""Processes put together from their parts: a whole broker (broker, controller candidate, site agent
on one gRPC server), or a controller candidate alone.

If a part cannot start, the parts before it are stopped in reverse order, and the process ends. The
health of the whole process (gRPC, service "") turns to SERVING when clients are let in. Called by
`cli/processes/daemons.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress

from kazoo.exceptions import NodeExistsError
from prometheus_client import CollectorRegistry

from broker.authentication.inter_broker import client_security
from broker.main import Broker
from broker.settings.config import BrokerSettings
from broker.settings.loading import listener_security, load_broker_settings
from broker.site.membership import Membership
from broker.site.security_survey import security_survey
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from dr.agent.host import SiteAgentHost
from runtime.addresses import HostPort, reachable_address
from runtime.clock import SystemClock
from runtime.configuration import ConfigurationError, load_settings
from runtime.garbage import leave_startup_objects_alone, look_for_garbage_rarely
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from runtime.metrics import MetricsServer, new_registry
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.own_sessions import OwnSessions
from runtime.zookeeper.sessions import NoteSession, note_no_session
from wire.access.protection import protect_daemon
from wire.client.security import SecurityProtocol, secure_clients

log = get_logger(__name__)


async def run_broker(properties: Mapping[str, str], stop: asyncio.Event) -> None:
    """Run a broker process until `stop` is set. ConfigurationError and OperationalFailure say why
    it cannot run.
    """
    started: list[Broker] = []
    look_for_garbage_rarely()
    async with AsyncExitStack() as running:
        if await _unless_stopped(_start_broker(running, properties, started), stop):
            await until_stopped_or_failed(started[0], stop)
        log.info("stopping")


async def until_stopped_or_failed(broker: Broker, stop: asyncio.Event) -> None:
    """Wait for `stop`. OperationalFailure when the last log directory has failed: the process ends,
    so that other brokers lead its partitions.
    """
    await _first_of(stop, broker.failed)
    if broker.failed.is_set():
        raise OperationalFailure("every log directory has failed; see the log for the reasons, and replace the disks")


async def until_ready(broker: Broker) -> None:
    """Wait until the broker serves clients. A broker without a log directory never is ready where
    the controller waits for it.
    """
    await until_stopped_or_failed(broker, broker.ready)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


async def _start_broker(running: AsyncExitStack, properties: Mapping[str, str], started: list[Broker]) -> None:
    settings = load_broker_settings(properties)
    protect_daemon(properties)
    _secure_clients(settings)
    candidate_settings = load_settings(ControllerSettings, properties)
    registry = new_registry()
    _serve_metrics(running, settings.metrics_listener, registry)
    sessions = OwnSessions(settings.zookeeper_connect)
    zookeeper = await _connect(running, settings, sessions.noting("broker"))
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    broker = Broker(settings, server, Membership(settings, zookeeper, SystemClock()), on_locked=sessions.succeed)
    registry.register(broker.metrics)
    candidate = None
    if settings.is_controller_candidate:
        candidate = ControllerCandidate(
            candidate_settings,
            grpc_server=server,
            registry=registry,
            note_session=sessions.noting("controller"),
            heeds_altered_configs=True,
        )
    agent = SiteAgentHost(
        site_name=settings.site,
        zookeeper_connect=settings.zookeeper_connect,
        zookeeper_session_timeout_ms=settings.zookeeper_session_timeout_ms,
        arbiter_connect=settings.arbiter_connect,
        arbiter_session_timeout_ms=settings.arbiter_session_timeout_ms,
        grpc_server=server,
        registry=registry,
        survey_security=lambda: security_survey(settings, broker.cluster.image),
    )
    port = await server.start(is_ready=False)
    running.push_async_callback(server.stop)
    address = str(HostPort(settings.grpc_listener.host, port))
    if candidate is not None:
        running.push_async_callback(candidate.stop)
        advertised = reachable_address(settings.grpc_listener, settings.grpc_advertised, port)
        await candidate.start(grpc_address=str(advertised))
    running.callback(sessions.forget)
    running.push_async_callback(broker.stop)
    await broker.start(grpc_port=port)
    running.push_async_callback(agent.stop)
    await agent.start(address)
    started.append(broker)
    await until_ready(broker)
    await server.set_serving("", is_serving=True)
    leave_startup_objects_alone()


def _secure_clients(settings: BrokerSettings) -> None:
    """Have the site agent's clients log in at brokers as this broker does at others."""
    between_brokers = settings.inter_broker_listener or settings.listeners[0].name
    security = listener_security(settings)[between_brokers]
    if security.protocol is not SecurityProtocol.PLAINTEXT:
        secure_clients(client_security(security, security.protocol))


async def run_controller(properties: Mapping[str, str], stop: asyncio.Event) -> None:
    """A controller candidate without a broker until `stop` is set. Errors as for a broker."""
    async with AsyncExitStack() as running:
        if await _unless_stopped(_start_controller(running, properties), stop):
            await stop.wait()
        log.info("stopping")


async def _start_controller(running: AsyncExitStack, properties: Mapping[str, str]) -> None:
    settings = load_settings(ControllerSettings, properties)
    protect_daemon(properties)
    registry = new_registry()
    _serve_metrics(running, settings.metrics_listener, registry)
    await _connect(running, settings)
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    candidate = ControllerCandidate(settings, grpc_server=server, registry=registry, heeds_altered_configs=True)
    port = await server.start(is_ready=False)
    running.push_async_callback(server.stop)
    running.push_async_callback(candidate.stop)
    address = reachable_address(settings.grpc_listener, settings.grpc_advertised, port)
    await candidate.start(grpc_address=str(address))
    await server.set_serving("", is_serving=True)
    log.info("running for election", grpc=str(address))


async def _unless_stopped(starting: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """True when the start is through, False when `stop` was set before; an exception of the start
    is raised.
    """
    task = asyncio.ensure_future(starting)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        for pending in (task, stopping):
            pending.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


def _serve_metrics(running: AsyncExitStack, listener: HostPort | None, registry: CollectorRegistry) -> None:
    if listener is None:
        return
    server = MetricsServer(registry, host=listener.host, port=listener.port)
    try:
        server.start()
    except OSError as error:
        raise ConfigurationError(
            "antipode.metrics.listener", str(listener), f"an address that can be bound ({error.strerror})"
        ) from error
    running.callback(server.stop)


async def _connect(
    running: AsyncExitStack,
    settings: BrokerSettings | ControllerSettings,
    note_session: NoteSession = note_no_session,
) -> ZooKeeper:
    """A session, with the chroot of the connect string made when it is not there."""
    connect, timeout_ms = settings.zookeeper_connect, settings.zookeeper_connection_timeout_ms
    session_timeout_ms = settings.zookeeper_session_timeout_ms
    hosts, slash, chroot = connect.partition("/")
    if chroot.strip("/"):
        outside = ZooKeeper(hosts, session_timeout_ms=session_timeout_ms)
        await outside.start(timeout_ms=timeout_ms)
        try:
            with suppress(NodeExistsError):
                await outside.ensure_path(slash + chroot)
        finally:
            await outside.stop()
    zookeeper = ZooKeeper(connect, session_timeout_ms=session_timeout_ms, note_session=note_session)
    await zookeeper.start(timeout_ms=timeout_ms)
    running.push_async_callback(zookeeper.stop)
    return zookeeper
