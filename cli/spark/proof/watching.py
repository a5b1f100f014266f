"""`antipode reconcile --watch`: compares the digests of both sites repeatedly, prints the time
until which each link or pair of sites is proven equal, and serves it as metrics.

The comparison and the state of the proof are those of the active site's agents
(`dr/agent/equality_watch.py`), so both report the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from rich.markup import escape

from cli.shared.output import console, report_progress
from runtime.addresses import HostPort
from runtime.clock import SystemClock
from runtime.metrics import MetricsServer, new_registry
from runtime.process import OperationalFailure, run_daemon
from runtime.times import iso_time

if TYPE_CHECKING:
    from dr.proof.comparison import ComparisonRequest
    from dr.proof.core.verification import VerificationWatch

INTERVAL_MS: Final = 5_000
EPOCH: Final = 0
"""A pair of sites has one proof, without epochs of a link."""


class ProofMetrics(Collector):
    """The proof of each partition."""

    def __init__(self, watch: VerificationWatch) -> None:
        self._watch = watch

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges; the thread of the metrics server calls this."""
        offset = GaugeMetricFamily(
            "antipode_verified_until_offset",
            "Below this offset the partition was equal at both sites at the last comparison.",
            labels=["topic", "partition"],
        )
        until = GaugeMetricFamily(
            "antipode_verified_until_timestamp_seconds",
            "Everything that the source held of the partition at this Unix time is proven equal at the target; 0 before "
            "the first proof.",
            labels=["topic", "partition"],
        )
        for (topic, partition), end_offset in sorted(self._watch.proven_ends.copy().items()):
            offset.add_metric([topic, str(partition)], end_offset)
        for (topic, partition), until_ms in sorted(self._watch.proven_until_ms.copy().items()):
            until.add_metric([topic, str(partition)], until_ms / 1000)
        yield offset
        yield until

    def describe(self) -> Iterable[Metric]:
        """Describes nothing in advance: the partitions are unknown yet."""
        return ()


def watch_digests(
    request: ComparisonRequest, *, interval_ms: int, listener: HostPort | None, is_paused: Callable[[], str]
) -> int:
    """Compare until the process is asked to end; the exit code. `is_paused` says why a comparison
    has to wait, or nothing.
    """
    from dr.proof.core.verification import VerificationWatch

    watch = VerificationWatch()

    async def run(stop: asyncio.Event) -> None:
        server = _served(watch, listener)
        try:
            while not stop.is_set():
                await _compare_once(request, watch, is_paused)
                try:
                    await asyncio.wait_for(stop.wait(), interval_ms / 1000)
                except TimeoutError:
                    continue
        finally:
            if server is not None:
                server.stop()

    return run_daemon(run)


def _served(watch: VerificationWatch, listener: HostPort | None) -> MetricsServer | None:
    if listener is None:
        return None
    registry = new_registry()
    registry.register(ProofMetrics(watch))
    server = MetricsServer(registry, host=listener.host, port=listener.port)
    try:
        port = server.start()
    except OSError as error:
        raise OperationalFailure(f"--metrics-listener {listener} cannot be bound: {error.strerror}") from error
    report_progress(f"metrics at http://{listener.host}:{port}/metrics")
    return server


async def _compare_once(request: ComparisonRequest, watch: VerificationWatch, is_paused: Callable[[], str]) -> None:
    """One round. A site that does not answer delays the proof but does not end the watch."""
    from dr.proof.comparison import compare_sites

    clock = SystemClock()
    at = iso_time(clock.now_ms())
    try:
        if reason := await asyncio.to_thread(is_paused):
            console.print(f"{at} paused: {reason}", highlight=False, markup=False)
            return
        state = watch.observe(await compare_sites(request, clock), epoch=EPOCH)
    except OperationalFailure as failure:
        console.print(f"{at} [red]not compared:[/] {escape(str(failure))}", highlight=False)
        return
    until = f"equal until {iso_time(state.verified_until_ms)}" if state.verified_until_ms else "nothing is proven yet"
    noun = "difference" if state.differences == 1 else "differences"
    differences = f", [red]{state.differences} {noun}[/]: {escape(state.reason)}" if state.differences else ""
    problem = f", not all compared: {state.reason}" if state.reason and not state.differences else ""
    left_out = f", apart from {state.not_covered}" if state.not_covered else ""
    console.print(f"{at} {until}{escape(left_out)}{differences}{escape(problem)}", highlight=False)
