"""The mirror daemon: reads its link from the target's site agents, connects both sites, mirrors
until it is stopped.

It serves metrics and MirrorAdmin at once, also before a site answers. `running.py` runs it; tests
make a `MirrorDaemon` themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry

from mirror.admin.opening_metrics import OpeningMetrics
from mirror.admin.service import SERVICE_NAME, MirrorAdminService
from mirror.assembly import DrainResult, Mirror
from mirror.ends import Ends
from mirror.exact_ends import ExactEnds
from mirror.flow.core.health import Health
from mirror.flow.followed_link import MustBeginAnew
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import AgentsUnreachable, LinkMissing, LinkReader, LinkView
from mirror.link.ports import Unreachable
from mirror.settings.config import MirrorConfig
from mirror.settings.values import LinkMode
from mirror.sharing.agreed_settings import self_description
from mirror.sharing.group_sharing import GroupSharing
from mirror.sharing.joining import make_sharing
from mirror.sharing.ownership import OnGain, read_nothing
from mirror.sharing.shares import Share, SharedLink, WholeLink
from mirror.translate.link_holder import HeldLink
from mirror.translate_ends import TranslateEnds
from runtime.addresses import HostPort, parse_host_ports
from runtime.configuration import ConfigurationError
from runtime.doors import ProcessDoors
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from runtime.metrics import MetricsServer, new_registry
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from runtime.supervision import BrokenOff, Supervisor, was_asked_to_end
from wire.control import mirror_pb2_grpc
from wire.rules.links import blacklist_of

CLIENT_ID = "antipode-mirror"
HEALTH_INTERVAL_S = 0.5
"""Interval (s) at which gRPC health is updated."""
Healths = dict[str, Callable[[], Health]]
"""The health of mirrors by link name."""

_log = get_logger("mirror")


class Closing(Protocol):
    """A client that the daemon closes when it ends."""

    async def close(self) -> None:
        """Drop the connections."""
        ...


class MirrorDaemon:
    """One daemon for one link. `start` returns when it serves; `failed` resolves when it cannot go
    on; then `stop`.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        doors: ProcessDoors | None = None,
        registry: CollectorRegistry | None = None,
        healths: Healths | None = None,
        exact_ends: Callable[..., ExactEnds] = ExactEnds,
        on_mirroring: Callable[[], None] = lambda: None,
    ) -> None:
        """With `registry` and `healths` the metrics and the health appear on the pages of the
        caller; otherwise the daemon serves its own. `exact_ends` creates the ends of an exact
        link; `on_mirroring` is called when the mirror has started.
        """
        self._make_exact_ends = exact_ends
        self._on_mirroring = on_mirroring
        self._config = config
        self._doors = doors = doors or ProcessDoors()
        self._healths = {} if healths is None else healths
        self._is_serving_metrics = registry is None
        self._registry = registry or new_registry()
        self._admin = MirrorAdminService(config.link_name)
        self._opening = OpeningMetrics(self._registry, link=config.link_name, health=self._admin.health)
        self._healths[config.link_name] = self._admin.health
        self._links = LinkReader(config.link_name, config.site_agents, doors.dial)
        self._metrics_server: MetricsServer | None = None
        self._grpc: GrpcServer | None = None
        self._bringing_up: asyncio.Task[None] | None = None
        self._loops = Supervisor()
        self._explained = ""
        self._has_moved = False
        self._closing: list[Closing] = []
        self.mirror: Mirror | None = None
        self.metrics_port: int | None = None
        self.grpc_port: int | None = None

    async def start(self) -> None:
        """Serve metrics and MirrorAdmin, then bring the mirror up in the background.
        OperationalFailure: a port is taken.
        """
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        if self._config.queue_enqueue_timeout_ms >= 0:
            _log.warning(
                "queue.enqueue.timeout.ms is not -1: batches that find no room are fetched again",
                value=self._config.queue_enqueue_timeout_ms,
            )
        self._serve_metrics()
        await self._serve_admin()
        self._bringing_up = asyncio.get_running_loop().create_task(self._bring_up())

    async def stop(self) -> DrainResult | None:
        """Drain and end everything; None if the mirror has not started. After a change of the
        source nothing is drained: the new source decides what the target lacks.
        """
        result = None
        if self._bringing_up is not None:
            self._bringing_up.cancel()
            await asyncio.gather(self._bringing_up, return_exceptions=True)
        await self._loops.stop()
        if self.mirror is not None:
            timeout_ms = 0 if self._has_moved else self._config.shutdown_drain_timeout_ms
            result = await self.mirror.stop(drain_timeout_ms=timeout_ms)
        for closing in self._closing:
            await closing.close()
        await self._links.close()
        if self._grpc is not None:
            await self._grpc.stop(grace_s=0.2)
        if self._metrics_server is not None:
            self._metrics_server.stop()
        return result

    def _serve_metrics(self) -> None:
        listener = self._config.metrics_listener
        if listener is not None and self._is_serving_metrics:
            self._metrics_server, self.metrics_port = serve_metrics(self._registry, listener, self._healths)

    async def _serve_admin(self) -> None:
        listener = self._config.grpc_listener
        if listener is None:
            return
        self._grpc = GrpcServer(listener.host, listener.port)
        mirror_pb2_grpc.add_MirrorAdminServicer_to_server(self._admin, self._grpc.server)  # type: ignore[no-untyped-call]
        self._grpc.add_service_name(SERVICE_NAME)
        self.grpc_port = await self._grpc.start(is_ready=False)
        self._loops.start("health", self._report_health)

    async def _report_health(self) -> None:
        """Publish the mirror's health as the process's gRPC health; MirrorAdmin itself serves from
        the start.
        """
        while self._grpc is not None:
            await self._grpc.set_serving("", is_serving=self._admin.health().is_serving)
            await asyncio.sleep(HEALTH_INTERVAL_S)

    async def _bring_up(self) -> None:
        try:
            config, ends, share, link = await self._find_ends()
            self.mirror = Mirror(config, ends, share, link, registry=self._registry, doors=self._doors)
            self.mirror.failed.add_done_callback(lambda failed: self._fail(failed.result()))
            self._admin.show(self.mirror)
            self._opening.record_opened()
            self.mirror.start()
        except (Exception, asyncio.CancelledError) as error:
            # A cancelled inner call is an error here, not a request to end.
            if was_asked_to_end():
                raise
            self._fail(
                error if isinstance(error, Exception) else BrokenOff("the link was not opened: a call was cancelled")
            )
            return
        self._on_mirroring()
        view = link.view
        _log.info("mirroring", link=view.name, epoch=view.epoch, role=view.role.value)

    async def _find_ends(self) -> tuple[MirrorConfig, Ends, Share, KnownLink]:
        if self._config.link_mode is LinkMode.TRANSLATE:
            return await self._open_translate_link()
        link_view, target = await self._find_link()
        check_filters(self._config, link_view)
        link = KnownLink(link_view)
        ends = self._make_exact_ends(
            self._config,
            source=source_bootstrap(link_view, configured=self._config.source_bootstrap_servers),
            target=target,
            read_link=self._links.read,
            shared_access=self._links,
            link=link,
            client_id=CLIENT_ID,
            doors=self._doors,
        )
        self._closing.append(ends)
        share = self._join(target, link_view, read_nothing) if self._config.is_sharing else WholeLink(self._name)
        return self._config, ends, share, link

    async def _open_translate_link(self) -> tuple[MirrorConfig, Ends, Share, KnownLink]:
        """The link once both ends answer, however long that takes."""
        ends = TranslateEnds(self._config, client_id=CLIENT_ID, registry=self._registry, clock=self._doors.clock)
        self._closing.append(ends)
        async for attempt in jittered_backoff(retry_on=Unreachable, initial_ms=50, max_ms=500):
            with attempt:
                try:
                    link_view = await ends.open()
                except Unreachable as error:
                    self._explain(str(error))
                    raise
        if not self._config.is_sharing:
            return ends.mirror_config(), ends, await self._hold(ends), KnownLink(link_view)
        share = self._join(self._config.target_bootstrap_servers, link_view, ends.read_again)
        ends.share(share.ownership)
        return ends.mirror_config(), ends, share, KnownLink(link_view)

    async def _hold(self, ends: TranslateEnds) -> Share:
        """The share of a daemon that carries the link alone. While another daemon carries it, this
        one waits.
        """
        holder = ends.hold(daemon=self._name)
        if holder is None:
            return WholeLink(self._name)
        self._closing.insert(0, holder)
        with contextlib.suppress(Unreachable):
            await holder.turn()
        return HeldLink(self._name, holder)

    def _join(self, target: Sequence[HostPort], link_view: LinkView, on_gain: OnGain) -> SharedLink:
        """The share of a daemon that is one of several."""
        sharing = make_sharing(self._config, target, client_id=CLIENT_ID, on_gain=on_gain, doors=self._doors)
        if isinstance(sharing, GroupSharing):
            self._closing.insert(0, sharing)
        sharing.ownership.own = self_description(self._config, link_view.record, name=self._name)
        return SharedLink(self._name, sharing.ownership, sharing.run)

    @property
    def _name(self) -> str:
        return daemon_name(self.grpc_port)

    async def _find_link(self) -> tuple[LinkView, tuple[HostPort, ...]]:
        """Read the link and the addresses of the target's brokers; wait for the agents without a
        time limit.
        """
        # A link of several standbys joins its target only when the site is promoted.
        awaited = (AgentsUnreachable, LinkMissing) if self._config.is_link_awaited else (AgentsUnreachable,)
        async for attempt in jittered_backoff(retry_on=awaited, initial_ms=50, max_ms=500):
            with attempt:
                try:
                    link_view = await self._links.read()
                    configured = self._config.target_bootstrap_servers
                    return link_view, configured or await self._links.target_bootstrap_servers()
                except awaited as error:
                    self._explain(str(error))
                    raise
        raise AgentsUnreachable("no attempt was made")

    def _explain(self, reason: str) -> None:
        """Set the reason why nothing is mirrored yet, for MirrorAdmin; log it each time it
        changes.
        """
        self._admin.explain(reason)
        if reason != self._explained:
            _log.warning("cannot open the link yet; retrying", reason=reason)
        self._explained = reason

    def _fail(self, error: BaseException) -> None:
        self._has_moved |= isinstance(error, MustBeginAnew)
        if not self.failed.done():
            self.failed.set_result(error)


def daemon_name(grpc_port: int | None) -> str:
    """The name under which other daemons and operators know this daemon: the address of its
    MirrorAdmin, or its process.
    """
    host = socket.gethostname()
    return f"{host} (process {os.getpid()})" if grpc_port is None else f"{host}:{grpc_port}"


def check_filters(config: MirrorConfig, link_view: LinkView) -> None:
    """Raises ConfigurationError when the file's filters are not those of the link, naming both."""
    record = link_view.record
    for key, ours, theirs, implied in (
        ("whitelist", config.whitelist, tuple(record.topic_whitelist), ()),
        ("blacklist", config.blacklist, blacklist_of(record), set(blacklist_of(record)) - set(record.topic_blacklist)),
    ):
        if ours is not None and {*ours, *implied} != set(theirs):
            raise ConfigurationError(
                key, ",".join(ours), f"the same as link {record.name} has: {','.join(theirs) or '(nothing)'}"
            )


def source_bootstrap(link_view: LinkView, *, configured: Sequence[HostPort] | None) -> Sequence[HostPort]:
    """The source's brokers: those in the file, which are those of the site that the link was made
    with, or else those in the link's record. Raises OperationalFailure when the record has none.
    """
    if configured and not link_view.record.replaced_site:
        return configured
    servers = link_view.record.sites[link_view.source_site].bootstrap_servers
    if not servers:
        raise OperationalFailure(
            f"link {link_view.name} has no address of site {link_view.source_site}; set source.bootstrap.servers"
        )
    return parse_host_ports(servers)


def serve_metrics(registry: CollectorRegistry, listener: HostPort, healths: Healths) -> tuple[MetricsServer, int]:
    """Serve these figures, and at `/health` how each link's mirror is; where, too.
    ConfigurationError: the address is taken.
    """

    def health() -> tuple[bool, Mapping[str, object]]:
        found = {link: ask() for link, ask in sorted(healths.items())}
        return all(one.is_serving for one in found.values()), {link: one._asdict() for link, one in found.items()}

    server = MetricsServer(registry, host=listener.host, port=listener.port, health=health)
    try:
        return server, server.start()
    except OSError as error:
        key = "antipode.metrics.listener"
        raise ConfigurationError(key, str(listener), f"an address that is free ({error.strerror})") from error
