"""The partitions of one broker with everything that replicates them inside the site: followers'
fetchers, proposals of in-sync replicas, reports of lost replicas.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.assembly.doors import Doors
from broker.authentication.inter_broker import Secured, plaintext
from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metrics import BrokerMetrics
from broker.replication.following.replica_fetchers import ReplicaFetchers
from broker.replication.hosted_partition import HostedPartition
from broker.replication.isr_proposals import IsrProposals
from broker.replication.offline_reports import OfflineReplicaReports
from broker.replication.replica_listeners import ReplicaListeners
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.config import BrokerSettings
from wire.control.clients import ControllerClient


class Replication:
    """The replicas of one broker, and the tasks that replicate them. The owner registers `on_image`
    of the parts in the order of their fields.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        doors: Doors,
        *,
        cluster: Cluster,
        logs: LogStore,
        controller: ControllerClient,
        metrics: BrokerMetrics,
        broker_epoch: Callable[[], int],
        on_lost: Callable[[int], None],
        secured: Secured = plaintext,
    ) -> None:
        clock = doors.clock
        self.replicas = Replicas(
            settings,
            clock,
            logs,
            metrics,
            cuts=TruncatedRecords(doors.disk, bytes_max=settings.truncated_bytes_kept_max, remove=logs.remove_file),
            # Methods, because the parts that they call need the replicas and are made after them.
            listeners=ReplicaListeners(
                follower_outside=self._consider,
                isr_proposed=self._propose,
                first_reader=self._look_again,
                offline_changed=self._report_offline,
            ),
        )
        self.fetchers = ReplicaFetchers(
            self.replicas, cluster, settings, clock, broker_epoch=broker_epoch, on_lost=on_lost, secured=secured
        )
        self.proposals = IsrProposals(self.replicas, cluster, controller, settings, clock, broker_epoch=broker_epoch)
        self.offline_reports = OfflineReplicaReports(
            self.replicas, controller, node_id=settings.node_id, broker_epoch=broker_epoch
        )

    def _consider(self, hosted: HostedPartition, replica: int) -> None:
        self.proposals.consider(hosted, replica)

    def _propose(self, hosted: HostedPartition) -> None:
        self.proposals.gather(hosted)

    def _look_again(self, hosted: HostedPartition) -> None:
        self.fetchers.look_again(hosted)

    def _report_offline(self) -> None:
        self.offline_reports.report()

    def start(self) -> None:
        """Start proposals and reports; fetchers start with the images that need them."""
        self.proposals.start()
        self.offline_reports.start()

    async def stop(self) -> None:
        """Stop proposing, reporting and fetching."""
        await self.proposals.stop()
        await self.offline_reports.stop()
        await self.fetchers.stop()

    def end_waits(self) -> None:
        """Complete all delayed requests, and complete new ones immediately."""
        self.replicas.purgatory.close()
