"""The parts of the broker that Fetch uses, beside the handler, which is compiled and can hold no
struct of its own.
"""

from __future__ import annotations

from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.metadata.cluster import Cluster
from broker.metrics import BrokerMetrics
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import FetchSessions
from broker.replication.replicas import Replicas
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.clock import Clock


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    clock: Clock
    cluster: Cluster
    configs: DynamicConfigs
    fetch_sessions: FetchSessions
    metrics: BrokerMetrics
    quotas: Quotas
    replicas: Replicas
