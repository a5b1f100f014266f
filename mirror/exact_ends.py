"""The ends of an exact link: two sites of Antipode, reached over Kafka's protocol and the target's
site agents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from mirror.admin.verifier import ExactVerifier
from mirror.ends import EndsStatus
from mirror.groups.group_config_sync import GroupConfigSync
from mirror.groups.group_report import AccessState, joined
from mirror.groups.transactional_ids import TransactionalIdSync
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import LinkView
from mirror.link.ports import AppendPort, FetchPort
from mirror.settings.config import MirrorConfig
from mirror.sharing.shares import Worker
from mirror.sites.dialing import Dialing
from mirror.sites.kafka_offsets_tail import KafkaOffsetsTail
from mirror.sites.kafka_producers import KafkaProducersOfSource, KafkaProducersOfTarget
from mirror.sites.kafka_site import KafkaSite, new_client
from mirror.sites.kafka_transfer import KafkaAppend, KafkaFetch, KafkaProgress, KafkaReports
from mirror.topics.access_sync import AccessSync
from mirror.topics.access_watch import AccessWatch
from mirror.topics.quarantine import KafkaQuarantine
from mirror.topics.shared_access import SharedAccessPort
from mirror.topics.topic_actor import ControllerActor
from runtime.addresses import HostPort
from runtime.doors import ProcessDoors
from wire.protocol.ids import MIRROR, TopicPartition


class ExactEnds:
    """The `Ends` of one exact link; `close` last."""

    name_at_target = None
    is_exact = True

    def __init__(
        self,
        config: MirrorConfig,
        *,
        source: Sequence[HostPort],
        target: Sequence[HostPort],
        read_link: Callable[[], Awaitable[LinkView]],
        shared_access: SharedAccessPort,
        link: KnownLink,
        client_id: str,
        doors: ProcessDoors,
    ) -> None:
        """`read_link` and `shared_access` ask the target's agents; `link` has the record as last
        read.
        """
        self._config = config
        self._source_servers = source
        self._target_servers = target
        self._read_link = read_link
        self._dialing = dialing = Dialing(config, client_id=client_id)
        self.tallies = dialing.tallies
        self.source = self.source_groups = KafkaSite(source, dialing.source, replica_id=MIRROR)
        self.target = self.target_groups = KafkaSite(target, dialing.target)
        self.actor = ControllerActor(config.site_agents, doors.dial)
        self._source_client = new_client(source, dialing.source)
        self._target_client = new_client(target, dialing.target)
        self.offsets_tail = KafkaOffsetsTail(
            self._source_client,
            new_client(source, dialing.source),
            clock=doors.clock,
            max_wait_ms=config.group_sync_interval_ms // 2,
        )
        self.verifier = ExactVerifier(self._source_client, self._target_client)
        self.quarantine = KafkaQuarantine(self._target_client)
        self._transactional_ids = TransactionalIdSync(
            KafkaProducersOfSource(self._source_client),
            KafkaProducersOfTarget(self._target_client),
            link=lambda: link.view,
            interval_ms=config.group_sync_interval_ms,
        )
        self._group_configs = GroupConfigSync(
            source=self.source,
            target=self.target,
            link=link,
            clock=doors.clock,
            interval_ms=config.config_sync_interval_ms,
        )
        self._access_watch = AccessWatch(new_client(source, dialing.source), lambda: link.view)
        self._access = AccessSync(
            source=self._source_client,
            target=self._target_client,
            watch=self._access_watch,
            link=link,
            shared=shared_access,
            clock=doors.clock,
            interval_ms=config.acl_sync_interval_ms,
            excluded_principals=config.acl_principal_blacklist,
        )

    @property
    def workers(self) -> Mapping[str, Worker]:
        """The tasks that carry transactional ids, groups' configs and access rules."""
        workers = {"transactional-ids": self._transactional_ids.run, "group-configs": self._group_configs.run}
        if self._config.is_syncing_acls is not False:
            workers["access"] = self._access.run
        return workers

    def open_fetch(self) -> FetchPort:
        """Open a connection that reads partitions of the source as a mirror."""
        config = self._config
        return KafkaFetch(
            self._source_servers,
            self._dialing.source,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.partition_fetch_max_bytes,
            max_wait_ms=config.fetch_wait_max_ms,
            replica_id=MIRROR,
        )

    def open_append(self) -> AppendPort:
        """Open a connection that sends MirrorAppend to the target."""
        return KafkaAppend(self._target_servers, self._dialing.appends(in_flight_max=self._config.in_flight_max))

    def open_reports(self) -> KafkaReports:
        """Open a connection that reports idle partitions to the target."""
        return KafkaReports(self._target_servers, self._dialing.target)

    def open_progress(self) -> KafkaProgress:
        """Open a connection that reports the target's progress to the source of a sync link."""
        return KafkaProgress(self._source_servers, self._dialing.source)

    async def read_link(self) -> LinkView:
        """Ask the target's agents for the link's record. LinkMissing, AgentsUnreachable."""
        return await self._read_link()

    async def finish(self) -> None:
        """Save nothing: the sites keep the whole state of an exact link."""

    def status(self) -> EndsStatus:
        """Return the access rules and configs of groups that are at the target, and those that are
        not.
        """
        states = [self._group_configs.state]
        if self._config.is_syncing_acls is not False:
            states.append(AccessState(self._access.problems, self._access.carried))
        return EndsStatus(access=joined(states))

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        """Return nothing: an exact target has one copy of each record."""
        return {}

    async def close(self) -> None:
        """Drop the connections."""
        for closing in (
            self.source,
            self.target,
            self.actor,
            self.offsets_tail,
            self._access_watch,
            self._source_client,
            self._target_client,
        ):
            await closing.close()
