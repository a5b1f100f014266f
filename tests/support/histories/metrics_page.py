"""Every figure that our daemons show, as the tables of `docs/metrics.md`: made from the collectors
themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from bridge.metrics import GAUGES as BRIDGE_GAUGES
from bridge.metrics import BridgeMetrics
from broker.authorization.authorizer import Authorizer
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.telemetry.gauges import add_gauges
from broker.telemetry.quota_metrics import QuotaMetrics
from clients.producer.producer_metrics import ProducerMetrics
from clients.producer.producer_options import ProducerCounts
from controller.metrics import ControllerMetrics
from dr.agent.core.silences import Silences
from dr.agent.core.watched_link import FailoverCounts
from dr.agent.metrics import SiteAgentMetrics
from dr.proof.core.verification import LinkVerification
from mirror.admin.metrics import MirrorMetrics
from mirror.admin.opening_metrics import OpeningMetrics
from mirror.admin.status import MirrorStatus
from mirror.flow.core.health import Health
from mirror.groups.metrics import CheckpointMetrics
from mirror.sharing.peer_watch import PeersStatus
from mirror.translate.metrics import TransactionMetrics
from runtime.metrics import TaskDeaths
from tests.support.clock import ManualClock
from wire.access.connections import ControlConnections
from wire.control.site_pb2 import LinkLease, LinkRehearsal
from wire.protocol.ids import TopicPartition
from wire.rules.acls import Operation
from wire.tls.shown_certificates import certificate_families

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"


def _broker_families() -> Iterable[Metric]:
    metrics = BrokerMetrics(log_sizes=lambda: {("t", 0): (0, 0, 0)}, follower_lags=lambda: {("t", 0): 0})
    quotas, connections = MagicMock(), MagicMock(throttled_count=0)
    metrics.families.append(QuotaMetrics(quotas, connections, MagicMock()).families)
    metrics.families.append(_denied().metric_families)
    metrics.topic("t")
    produce = metrics.api("Produce")
    produce.record(1.0)
    parts = MagicMock(**{"groups.count_by_state.return_value": Counter()})
    add_gauges(metrics, parts)
    agent = CollectorRegistry()
    SiteAgentMetrics(
        agent,
        contested=lambda: {"a-b": False},
        protection=lambda: {"a-b": (True, 0.0)},
        verification=lambda: {"a-b": (LinkVerification(epoch=1), {("t", 0): 0})},
        leases=lambda: {"a-b": LinkLease()},
        waiting=lambda: {"a-b": False},
        failovers=lambda: {"a-b": FailoverCounts()},
        rehearsals=lambda: {"a-b": (LinkRehearsal(), 0.0)},
        silences=lambda: {"a-b": _one_silence()},
    )
    return [*metrics.collect(), *agent.collect()]


def _one_silence() -> Silences:
    silences = Silences()
    silences.note(1.0)
    return silences


def _denied() -> Authorizer:
    """An authorizer that has denied something."""
    settings = MagicMock(
        authorizer_class="antipode.AclAuthorizer",
        super_users=(),
        mirror_principals={},
        allows_everyone_without_acl=False,
    )
    authorizer = Authorizer(settings, lambda: ClusterImage(site="a", node_id=1))
    authorizer.may_cluster(MagicMock(api_key=3, client_id="c", client_host="10.0.0.1"), Operation.CREATE)
    return authorizer


def _controller_families() -> Iterable[Metric]:
    registry = CollectorRegistry()
    ControllerMetrics(registry)
    return registry.collect()


def _mirror_families() -> Iterable[Metric]:
    registry = CollectorRegistry()
    link: Any = SimpleNamespace(name="a-b", epoch=1, source_site="a", target_site="b")
    queue: Any = SimpleNamespace(used_bytes=0, capacity_bytes=0, wait_on_put_ms=0.0, wait_on_take_ms=0.0, timeouts=0)
    metrics = MirrorMetrics(
        registry,
        board=MagicMock(),
        queue=queue,
        ends=MagicMock(
            tallies={}, name_at_target=None, surplus_records=MagicMock(return_value={TopicPartition("t", 0): 0})
        ),
        clock=ManualClock(),
        status=lambda: MirrorStatus(
            link=link,
            groups_stale_since_ms={"billing": 0},
            peers=PeersStatus(),
            stall_remedies={"restart": 0},
            restarts={"worker": 0},
        ),
        unacknowledged=list,
    )
    OpeningMetrics(registry, link="a-b", health=lambda: Health("IDLE", "", is_serving=False))
    entry: Any = SimpleNamespace(
        fetched_at_ms=0,
        fetched_monotonic_ms=0.0,
        run=SimpleNamespace(record_count=0, size_bytes=0, max_timestamp_ms=-1),
    )
    metrics.observe(TopicPartition("t", 0), entry)
    CheckpointMetrics(registry, source="a", target="b", clock=MagicMock())
    TransactionMetrics(registry, link="a-b").record_committed(open_ms=0, commit_ms=0)
    return registry.collect()


def _families_of_every_daemon() -> Iterable[Metric]:
    connections = ControlConnections(ManualClock())
    return [*TaskDeaths().collect(), *certificate_families(ManualClock()), *connections.families()]


def _bridge_families() -> Iterable[Metric]:
    registry = CollectorRegistry()
    metrics = BridgeMetrics(registry)
    metrics.record_request(route="/", status=200, seconds=0.0)
    metrics.record_failed(is_retriable=True)
    metrics.record_dropped("answer")
    for name in BRIDGE_GAUGES:
        metrics.add_gauge(name, lambda: 0.0)
    return registry.collect()


def _producer_families() -> Iterable[Metric]:
    producer = MagicMock(queued_records=0, queued_bytes=0, dropped_records=0, counts=ProducerCounts())
    return ProducerMetrics([producer]).collect()


def tables() -> dict[str, str]:
    """The table of each daemon, as Markdown."""
    families = {
        "every daemon": _families_of_every_daemon(),
        "broker": _broker_families(),
        "controller": _controller_families(),
        "mirror": _mirror_families(),
        "bridge": _bridge_families(),
        "producer": _producer_families(),
    }
    return {daemon: _table(found) for daemon, found in families.items()}


def _table(families: Iterable[Metric]) -> str:
    rows = ["| name | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(families, key=lambda family: family.name):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append(f"| `{name}` | {family.type} | {_labels(family)} | {family.documentation.rstrip('.')} |")
    return "\n".join(rows)


def _labels(family: Metric) -> str:
    names = getattr(family, "_labelnames", ())
    found = {label for sample in family.samples for label in sample.labels} | set(names)
    return ", ".join(f"`{label}`" for label in sorted(found - {"le"}))


def filled(page: str) -> str:
    """The page with today's tables between its marks."""
    for daemon, table in tables().items():
        begin, end = BEGIN.format(daemon), END.format(daemon)
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        page = f"{head}{begin}\n\n{table}\n\n{end}{tail}"
    return page
