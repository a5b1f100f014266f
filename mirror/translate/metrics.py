"""Transactions of a translate link at its target, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

TRANSACTION_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60)


class TransactionMetrics(Collector):
    """Transactions of one mirror at its target, counted as they end; the open one's contents at the
    time of a scrape.
    """

    def __init__(self, registry: CollectorRegistry, *, link: str) -> None:
        self._link = link
        self.committed = 0
        self.aborted = 0
        self.fenced = 0
        # Figures of the open transaction; no records and no age while there is none.
        self.open_records: Callable[[], int] = lambda: 0
        self.open_for_ms: Callable[[], float] = lambda: 0.0
        self._open, self._commit = (
            Histogram(name, text, ["link"], buckets=TRANSACTION_BUCKETS_S, registry=registry)
            for name, text in (
                (
                    "antipode_mirror_transaction_open_seconds",
                    "How long transactions at the target were open until committed.",
                ),
                (
                    "antipode_mirror_transaction_commit_seconds",
                    "How long commits at the target took: noting positions and ending the transaction.",
                ),
            )
        )
        registry.register(self)

    def record_committed(self, *, open_ms: float, commit_ms: float) -> None:
        """Count a committed transaction that was not empty."""
        self.committed += 1
        self._open.labels(self._link).observe(open_ms / 1000)
        self._commit.labels(self._link).observe(commit_ms / 1000)

    def record_aborted(self, *, is_fenced: bool) -> None:
        """Count an aborted transaction."""
        self.aborted += 1
        self.fenced += is_fenced

    def collect(self) -> Iterable[Metric]:
        """Yield all families except the histograms."""
        counters = (
            ("committed", "Transactions at the target that were committed.", self.committed),
            (
                "aborted",
                "Transactions at the target that were aborted; their records are written again.",
                self.aborted,
            ),
            (
                "fenced",
                "Transactions that were aborted by another mirror, or by the target after its timeout.",
                self.fenced,
            ),
        )
        for name, text, value in counters:
            counter = CounterMetricFamily(f"antipode_mirror_transactions_{name}", text, labels=["link"])
            counter.add_metric([self._link], value)
            yield counter
        gauges = (
            ("records", "Records in the transaction that is open at the target.", self.open_records()),
            ("age_seconds", "Age of the open transaction at the target.", self.open_for_ms() / 1000),
        )
        for name, text, held in gauges:
            gauge = GaugeMetricFamily(f"antipode_mirror_open_transaction_{name}", text, labels=["link"])
            gauge.add_metric([self._link], held)
            yield gauge

    def describe(self) -> Iterable[Metric]:
        """Describes nothing in advance, as `MirrorMetrics`."""
        return ()
