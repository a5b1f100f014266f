"""The coordinators of one broker: groups, transactions, producer ids, markers, and the check of the
registration, for which they wait after a pause of the process.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.assembly.doors import Doors, SiteMembership
from broker.authentication.delegation_tokens import read_token_secret
from broker.authentication.inter_broker import Secured, plaintext
from broker.coordination.internal_log import InternalLog
from broker.coordination.registration_check import RegistrationCheck
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_routing import ImageRouting
from broker.groups.limits import group_limits
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.network.peer_brokers import PeerBrokers
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from broker.site.access_digests import SiteAccess
from broker.site.group_handover import GroupHandover
from broker.site.group_reports import GroupReports
from broker.transactions.hanging_transactions import HangingTransactions
from broker.transactions.marker_sender import MarkerSender
from broker.transactions.producer_id_source import ProducerIdSource
from broker.transactions.transaction_admission import TransactionAdmission
from broker.transactions.transaction_coordinator import TransactionCoordinator, transaction_limits
from broker.transactions.transaction_markers import TransactionMarkers
from broker.transactions.transaction_routing import TransactionRouting
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control.clients import ControllerClient


class Coordination:
    """The coordinators of one broker. The owner registers `on_image` of groups, transactions and
    hanging transactions, in this order and after replication's.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        doors: Doors,
        *,
        cluster: Cluster,
        replicas: Replicas,
        membership: SiteMembership,
        controller: ControllerClient,
        broker_epoch: Callable[[], int],
        secured: Secured = plaintext,
    ) -> None:
        clock = doors.clock

        def image() -> ClusterImage:
            return cluster.image

        self.peers = PeerBrokers(image, settings.inter_broker_listener, secured)
        self.registration = RegistrationCheck(
            membership,
            cluster,
            clock,
            node_id=settings.node_id,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
        )
        self.groups = GroupCoordinator(
            group_limits(settings),
            InternalLog(OFFSETS_TOPIC, replicas, commit_timeout_ms=settings.offsets_commit_timeout_ms),
            ImageRouting(image, cluster.permits, clock),
            clock,
            may_answer=self.registration.holds,
            expiry_interval_ms=settings.offsets_retention_check_interval_ms,
        )
        self.producer_ids = ProducerIdSource(settings.node_id, controller, broker_epoch=broker_epoch)
        self.routing = TransactionRouting(image)
        self.markers = TransactionMarkers(image, replicas, self.groups, clock)
        self.transactions = TransactionCoordinator(
            transaction_limits(settings),
            InternalLog(TRANSACTIONS_TOPIC, replicas, commit_timeout_ms=settings.offsets_commit_timeout_ms),
            self.routing,
            clock,
            producer_ids=self.producer_ids,
            markers=MarkerSender(image, self.markers, self.peers),
            may_answer=self.registration.holds,
            expiry_interval_ms=settings.transactional_id_cleanup_interval_ms,
        )
        self.admission = TransactionAdmission(settings.node_id, self.routing, self.transactions, self.peers)
        self.group_reports = GroupReports(
            image,
            self.groups,
            self.transactions,
            clock,
            SiteAccess(
                image,
                has_authorizer=bool(settings.authorizer_class),
                has_tokens=bool(read_token_secret(settings.properties)),
            ),
        )
        self.handover = GroupHandover(image, self.groups)
        self.hanging = HangingTransactions(replicas, self.markers)

    def start(self) -> None:
        """Start the check of the registration, the expiry of offsets and the timeouts."""
        self.registration.start()
        self.groups.start()
        self.transactions.start()
