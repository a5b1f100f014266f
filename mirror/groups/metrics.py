"""The latency of groups' offsets on their way to the target: MirrorMaker 2's checkpoint latency."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mirror.flow.rolling import Figures, Rolling, figure_families
from mirror.settings.core.mirror_maker_keys import NamesFormat
from mirror.settings.metric_names import in_formats
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition

_LEGACY_NAMES = (NamesFormat.LEGACY,)
_CHECKPOINT_CONNECTOR = "kafka_connect_mirror_mirrorcheckpointconnector"
_OF_GROUP = ("source", "target", "group", "topic", "partition")


class CheckpointMetrics(Collector):
    """The latency of groups' offsets, under MirrorMaker 2's name; the mirror calls `observe` when
    the target has received some.

    For a translate link these are MirrorMaker's checkpoints, for an exact link the groups' own
    offsets.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        source: str,
        target: str,
        clock: Clock,
        names_formats: Collection[NamesFormat] = _LEGACY_NAMES,
    ) -> None:
        self._names_formats = names_formats
        self._ends = (source, target)
        self._clock = clock
        self._latencies: dict[tuple[str, TopicPartition], Rolling] = {}
        registry.register(self)

    def observe(self, group: str, copy: TopicPartition, *, asked_ms: float) -> None:
        """The target has the group's offset in this copy; it was asked for at the source at that
        time (monotonic ms).
        """
        now_ms = self._clock.monotonic_ms()
        self._latencies.setdefault((group, copy), Rolling()).add(max(0.0, now_ms - asked_ms), now_ms)

    def forget_all_but(self, groups: Container[str]) -> None:
        """The source has no other groups."""
        for place in [place for place in self._latencies if place[0] not in groups]:
            del self._latencies[place]

    def collect(self) -> Iterable[Metric]:
        """The family; NaN for a group of which nothing was written in the last minute."""
        now_ms = self._clock.monotonic_ms()
        found: dict[tuple[str, ...], Figures] = {
            (*self._ends, group, key.topic, str(key.partition)): rolling.figures(now_ms)
            for (group, key), rolling in tuple(self._latencies.items())
        }
        text = "Time from asking for a group's offsets at the source until the target has them."
        families = figure_families(f"{_CHECKPOINT_CONNECTOR}_checkpoint_latency_ms", text, _OF_GROUP, found)
        yield from in_formats(families, self._names_formats)

    def describe(self) -> Iterable[Metric]:
        """Describe no metrics in advance, like `MirrorMetrics`."""
        return ()
