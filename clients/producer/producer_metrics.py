"""Metrics of producers: the depth of their queues and the outcomes of their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from clients.producer.producer import Producer

_PREFIX = "antipode_producer"


class ProducerMetrics(Collector):
    """The figures of several producers as one. A scrape may read them from another thread."""

    def __init__(self, producers: Sequence[Producer]) -> None:
        self._producers = producers

    def collect(self) -> Iterator[Metric]:
        """The queue as gauges; records by outcome and repeated batches as counters."""
        producers = self._producers
        yield GaugeMetricFamily(
            f"{_PREFIX}_queued_records",
            "Records in the queue or on their way to a broker, which a producer that is killed may lose",
            value=sum(producer.queued_records for producer in producers),
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}_queued_bytes",
            "Bytes of the queue that these records take",
            value=sum(producer.queued_bytes for producer in producers),
        )
        records = CounterMetricFamily(f"{_PREFIX}_records", "Records by outcome", labels=["outcome"])
        records.add_metric(["delivered"], sum(producer.counts.delivered for producer in producers))
        records.add_metric(["failed"], sum(producer.counts.failed for producer in producers))
        records.add_metric(["dropped"], sum(producer.dropped_records for producer in producers))
        yield records
        yield CounterMetricFamily(
            f"{_PREFIX}_retries",
            "Batches that were sent again",
            value=sum(producer.counts.retries for producer in producers),
        )
