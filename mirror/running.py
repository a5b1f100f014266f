"""Runs the mirror daemons of one process until they are stopped, and begins anew when a link has
another source, or when its target was active without the mirror having seen it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from mirror.assembly import DrainResult
from mirror.flow.core.health import Health
from mirror.flow.followed_link import MustBeginAnew
from mirror.main import Healths, MirrorDaemon, serve_metrics
from mirror.settings.config import MirrorConfig
from runtime.addresses import HostPort
from runtime.garbage import leave_startup_objects_alone, look_for_garbage_rarely
from runtime.logs import get_logger
from runtime.metrics import MetricsServer, OnePage, new_registry

_log = get_logger("mirror")


async def run(
    config: MirrorConfig,
    stop: asyncio.Event,
    *,
    registry: CollectorRegistry | None = None,
    healths: Healths | None = None,
) -> DrainResult | None:
    """Mirror until `stop` is set, from each source that the link has. OperationalFailure (and what
    else made it fail) after everything has been closed.
    """
    shown: list[CollectorRegistry] = []
    if registry is not None:
        registry.register(OnePage(shown))
    while True:
        # Metrics cannot be registered twice, so each source has a registry of its own.
        shown[:] = [CollectorRegistry()]
        daemon = MirrorDaemon(
            config,
            registry=None if registry is None else shown[0],
            healths=healths,
            on_mirroring=leave_startup_objects_alone,
        )
        try:
            return await _run_daemon(daemon, stop)
        except MustBeginAnew as moved:
            _log.info("mirroring begins again", link=config.link_name, reason=str(moved))


async def _run_daemon(daemon: MirrorDaemon, stop: asyncio.Event) -> DrainResult | None:
    """Mirror until `stop` is set or the daemon fails; `stop` is set when it cannot go on."""
    look_for_garbage_rarely()
    try:
        await daemon.start()
    except BaseException:
        stop.set()
        await daemon.stop()
        raise
    stopping = asyncio.get_running_loop().create_task(stop.wait())
    daemon.failed.add_done_callback(lambda _: stopping.cancel())
    await asyncio.wait({stopping})
    result = await daemon.stop()
    if not daemon.failed.done():
        return result
    failure = daemon.failed.result()
    if isinstance(failure, MustBeginAnew):
        if stop.is_set():
            return result
    else:
        stop.set()
    raise failure


async def run_all(configs: Sequence[MirrorConfig], stop: asyncio.Event) -> None:
    """Mirror several links in one process; when one cannot continue, all end. The first failure is
    raised.

    Links with the same `antipode.metrics.listener` show their figures on one page.
    """
    pages: dict[HostPort, list[CollectorRegistry]] = {}
    healths: dict[HostPort | None, dict[str, Callable[[], Health]]] = defaultdict(dict)
    registries: list[CollectorRegistry | None] = []
    for config in configs:
        listener = config.metrics_listener
        is_shared = listener is not None and [one.metrics_listener for one in configs].count(listener) > 1
        registries.append(new_registry() if is_shared else None)
        if listener is not None and (registry := registries[-1]) is not None:
            pages.setdefault(listener, []).append(registry)
    servers: list[MetricsServer] = []
    try:
        for listener, joined in pages.items():
            servers.append(serve_metrics(OnePage.of(joined), listener, healths[listener])[0])
        runs = (
            run(config, stop, registry=registry, healths=healths[config.metrics_listener])
            for config, registry in zip(configs, registries, strict=True)
        )
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
    finally:
        for server in servers:
            server.stop()
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
