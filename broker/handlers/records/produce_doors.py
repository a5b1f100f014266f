"""The parts of the broker that Produce uses, beside the handler, which is compiled and can hold no
struct of its own.
"""

from __future__ import annotations

from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.handlers.records.role_moves import RoleMoves
from broker.metadata.cluster import Cluster
from broker.quotas.client_throttling import Quotas
from broker.replication.replicas import Replicas
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.controlled_shutdown import ControlledShutdown
from broker.transactions.transaction_admission import TransactionAdmission
from runtime.clock import Clock


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    clock: Clock
    cluster: Cluster
    configs: DynamicConfigs
    controlled_shutdown: ControlledShutdown
    quotas: Quotas
    replicas: Replicas
    role_moves: RoleMoves
    transaction_admission: TransactionAdmission
