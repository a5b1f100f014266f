"""The names under which MirrorMaker 2's metrics appear: `metric.names.formats` (KIP-1280).

Its legacy names are those of beans of MirrorMaker's own, its new ones those of Connect's beans for
plugins, with the connector and the task in two labels more. The JMX exporter's usual rules make
both. Antipode has no Connect tasks: all figures belong to task 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from mirror.settings.core.mirror_maker_keys import NamesFormat

LEGACY_PREFIX: Final = "kafka_connect_mirror_"
NEW_PREFIX: Final = "kafka_connect_plugins_"
CONNECTORS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector")


def in_formats(families: Iterable[Metric], formats: Collection[NamesFormat]) -> Iterator[Metric]:
    """Families with legacy names, in these formats."""
    for family in families:
        if NamesFormat.LEGACY in formats:
            yield family
        if NamesFormat.NEW in formats:
            yield _named_anew(family)


def _named_anew(family: Metric) -> Metric:
    connector = next(one for one in CONNECTORS if family.name.startswith(_legacy_prefix(one)))
    renamed = Metric(_new_name(family.name, connector), family.documentation, family.type)
    labels = {"connector": connector, "task": "0"}
    renamed.samples = [
        sample._replace(name=_new_name(sample.name, connector), labels={**labels, **sample.labels})
        for sample in family.samples
    ]
    return renamed


def _legacy_prefix(connector: str) -> str:
    return f"{LEGACY_PREFIX}{connector.lower()}_"


def _new_name(name: str, connector: str) -> str:
    return NEW_PREFIX + name.removeprefix(_legacy_prefix(connector))
