"""The ends of a translate link: the ports that make its target look like an exact one.

`main.py` opens one instead of asking site agents. Such a link has no record at its ends, and no
epoch. Two mirrors of one link do no harm, because their batches have sequences
(`mirror/translate/core/translation.py`) or, if the link is configured so, belong to transactions
(`mirror/translate/transactions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry

from mirror.admin.verifier import TranslateVerifier
from mirror.ends import EndsStatus
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.topic_naming import NamingPolicy
from mirror.link.link_watch import LinkView
from mirror.link.ports import AppendPort, Unreachable
from mirror.mirrormaker.mirror_maker_topics import MirrorMakerTopics
from mirror.settings.config import MirrorConfig
from mirror.settings.configured_link import link_view_of
from mirror.settings.values import MIB, ExistingTarget
from mirror.sharing.ownership import Ownership
from mirror.sharing.shares import Worker
from mirror.sites.dialing import Dialing
from mirror.sites.kafka_site import KafkaSite, new_client
from mirror.sites.kafka_transfer import KafkaFetch
from mirror.topics.acl_sync import AclSync
from mirror.translate.claiming import end_transactions
from mirror.translate.core.transaction_cycle import CycleLimits
from mirror.translate.link_holder import LinkHolder
from mirror.translate.metrics import TransactionMetrics
from mirror.translate.notes.group_notes import GroupNotes, OppositeGroupNotes
from mirror.translate.notes.offset_store import OffsetStore
from mirror.translate.opposite_links import OppositeLinks
from mirror.translate.provenance import Provenance
from mirror.translate.record_filter import SourceFilter
from mirror.translate.tail_reader import TailReader
from mirror.translate.transactional_append import APPENDS_MAX, TransactionalAppend
from mirror.translate.transactions import Transactions
from mirror.translate.translated_append import TranslatedAppend
from mirror.translate.translated_source import TranslatedSource
from mirror.translate.translated_target import TranslatedTarget
from mirror.translate.translations import Translations
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.connection import ConnectionOptions
from wire.protocol.ids import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from wire.rules.links import carries_topic

PIPELINED_REQUESTS_MAX = 64
"""Produce requests under way on one connection; a batch each of several partitions."""

ONE_PATH: Final[Mapping[str, int]] = {
    "streams": 1,
    "producers": 1,
    "fetch_max_bytes": 8 * MIB - 64 * 1024,
    "request_max_bytes": 8 * MIB,
}
"""What is in force where the file does not say it, except with transactions. A Produce request has
one batch of each partition, so requests are fewer if one fetcher and one producer have all
partitions of a broker.
"""

LAST_SAVE_TIMEOUT_S = 3.0

NOT_CARRIED_CONFIGS: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
"""Topic configs that the mirror does not carry to the target: those that MirrorMaker 2 leaves out,
and limits that old records would break.
"""

_log = get_logger("mirror.translate")


class TranslateEnds:
    """The `Ends` of one translate link; `open` first, `close` last."""

    quarantine = None
    offsets_tail = None
    is_exact = False

    def __init__(self, config: MirrorConfig, *, client_id: str, registry: CollectorRegistry, clock: Clock) -> None:
        self._config = config = _on_one_path(config)
        self._clock = clock
        self._dialing = Dialing(config, client_id=client_id)
        self.tallies = self._dialing.tallies
        self.name_at_target = config.naming.target_name
        self._source_client = new_client(config.source_bootstrap_servers, self._dialing.source)
        self._target_client = new_client(config.target_bootstrap_servers, self._dialing.target)
        self.source = self.source_groups = self._make_source()
        self._site = KafkaSite(config.target_bootstrap_servers, self._dialing.target)
        self._record = link_view_of(config).record
        self._store = store = OffsetStore(
            self._target_client, config.link_name, replication_factor=config.replication_factor
        )
        self._transactions = self._make_transactions(store, registry) if config.is_transactional else None
        self.translations = Translations(self._target_client, store, clock=clock, transactions=self._transactions)
        if self._transactions is not None:
            self._transactions.book = self.translations
        self._origins: set[str] = {config.source_alias}
        self._provenance = Provenance(
            self._source_client, source_alias=config.source_alias, on_origin=self._origins.add
        )
        self._record_filter = SourceFilter(
            self._provenance,
            target_alias=config.target_alias,
            isolation_level=READ_COMMITTED if config.is_read_committed else READ_UNCOMMITTED,
            have_producers=self._have_producers,
        )
        self._tails = TailReader(
            source=self._source_client,
            target=self._target_client,
            naming=config.naming,
            translations=self.translations,
            provenance=self._provenance,
            record_filter=self._record_filter,
            may_append_to_others=config.existing_target is ExistingTarget.APPEND,
            clock=clock,
            late_within_ms=config.request_timeout_ms,
        )
        self._group_notes = GroupNotes(
            self._target_client,
            config.link_name,
            source_alias=config.source_alias,
            replication_factor=config.replication_factor,
            clock=clock,
        )
        self.target = self.target_groups = self.actor = TranslatedTarget(
            source=self.source,
            target=self._site,
            client=self._target_client,
            naming=config.naming,
            translations=self.translations,
            tails=self._tails,
            opposite=OppositeLinks(self._source_client, is_target=config.target_alias.__eq__, clock=clock),
            group_notes=self._group_notes,
            carries=lambda topic: carries_topic(self._record, topic),
            replication_factor=config.replication_factor,
            is_syncing_configs=config.is_syncing_configs,
        )
        self.verifier = TranslateVerifier(
            self._source_client,
            self._target_client,
            naming=config.naming,
            translations=self.translations,
            record_filter=self._record_filter,
        )
        self._mirror_maker = self._make_mirror_maker(registry)
        self._acls = self._make_acl_sync() if config.is_syncing_acls else None

    async def open(self) -> LinkView:
        """Read the stored state of the link. Unreachable while an end does not answer;
        OperationalFailure when one refuses.
        """
        await self.translations.load()
        await self.translations.be_ready()
        if self._transactions is None and self.translations.writers:
            # The link wrote in transactions before.
            await end_transactions(
                self._target_client, self._store, clock=self._clock, timeout_ms=self._config.transaction_timeout_ms
            )
            await self.translations.load()
        if self._config.is_syncing_groups:
            await self._group_notes.load()
        await self._provenance.refresh()
        await self._have_producers()
        return link_view_of(self._config)

    def share(self, ownership: Ownership) -> None:
        """The share of a daemon that mirrors the slots that it owns, besides other daemons of the
        link.
        """
        if self._transactions is None:
            self.translations.owns = self.translations.may_write = ownership.owns
        else:
            self._transactions.slots = lambda: ownership.slots
            self.translations.owns = self._transactions.holds

    def hold(self, *, daemon: str) -> LinkHolder | None:
        """The link's lease, for a link that its daemons do not share; None where transactions keep
        others out.
        """
        if self._transactions is not None:
            return None
        holder = LinkHolder(
            self._store,
            daemon=daemon,
            session_timeout_ms=self._config.sharing_session_timeout_ms,
            clock=self._clock,
            on_gain=self.read_again,
        )
        self.translations.owns = holder.ownership.owns
        self.translations.may_write = holder.ownership.owns
        return holder

    def mirror_config(self) -> MirrorConfig:
        """The configuration with what a translate link adds to it."""
        changes: dict[str, object] = {
            "config_properties_exclude": (*self._config.config_properties_exclude, *NOT_CARRIED_CONFIGS)
        }
        if self._transactions is not None:
            # An append is over when its transaction ends, later than its request.
            changes["in_flight_max"] = APPENDS_MAX
        return self._config.model_copy(update=changes)

    @property
    def workers(self) -> Mapping[str, Worker]:
        """The tasks that save the link's state, write MirrorMaker 2's topics and carry ACLs."""
        workers = {"offset-map": self.translations.keep_saved, "mirror-maker": self._mirror_maker.run}
        if self._config.is_syncing_groups:
            workers["group-notes"] = self._group_notes.keep_saved
        if self._acls is not None:
            workers["acls"] = self._acls.run
        return workers

    def status(self) -> EndsStatus:
        """Return the state of ACLs, MirrorMaker 2's topics and transactions."""
        return EndsStatus(
            acls="" if self._acls is None else self._acls.status,
            mirror_maker=self._mirror_maker.status,
            transactions=None if self._transactions is None else self._transactions.describe(),
        )

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        """Return the records at the target beyond one copy of each, by partition."""
        return self.translations.surplus_records()

    async def read_link(self) -> LinkView:
        """Return the link's record, which never changes."""
        return link_view_of(self._config)

    def open_reports(self) -> None:
        """None: the records of Apache Kafka do not carry such reports."""
        return

    def open_progress(self) -> None:
        """Return None: a translate link is no sync link."""

    async def finish(self) -> None:
        """Save the link's state."""
        try:
            async with asyncio.timeout(LAST_SAVE_TIMEOUT_S):
                if self._transactions is None:  # with transactions only noted positions count
                    await self.translations.save()
                if self._config.is_syncing_groups:
                    await self._group_notes.save()
        except (TimeoutError, Unreachable) as error:
            _log.info("the link's state was not saved at shutdown", reason=str(error) or "timed out")

    async def close(self) -> None:
        """Drop the connections."""
        if self._transactions is not None:
            await self._transactions.close()
        for closing in (self._tails, self.source, self._site, self._source_client, self._target_client):
            await closing.close()

    def open_fetch(self) -> KafkaFetch:
        """Open a connection that reads committed or all batches, as configured."""
        config = self._config
        return KafkaFetch(
            config.source_bootstrap_servers,
            self._dialing.source,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.partition_fetch_max_bytes,
            max_wait_ms=config.fetch_wait_max_ms,
            record_filter=self._record_filter,
        )

    def append_options(self) -> ConnectionOptions:
        """Options of the connections that carry records to the target: the file's number of
        requests in flight is in force.

        Without that more are allowed than on exact links, since each batch of a partition takes a
        Produce request of its own.
        """
        is_given = "in_flight_max" in self._config.model_fields_set
        return self._dialing.appends(in_flight_max=self._config.in_flight_max if is_given else PIPELINED_REQUESTS_MAX)

    def open_append(self) -> AppendPort:
        """Open a connection that writes in transactions or under sequences, as configured."""
        client = new_client(self._config.target_bootstrap_servers, self.append_options())
        if self._transactions is not None:
            return TransactionalAppend(
                client,
                naming=self._config.naming,
                translations=self.translations,
                transactions=self._transactions,
                provenance=self._provenance,
                timeout_ms=self._config.request_timeout_ms,
            )
        return TranslatedAppend(
            client,
            naming=self._config.naming,
            translations=self.translations,
            tails=self._tails,
            clock=self._clock,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _make_transactions(self, store: OffsetStore, registry: CollectorRegistry) -> Transactions:
        config = self._config
        return Transactions(
            self._target_client,
            store,
            link=config.link_name,
            is_shared=config.is_sharing,
            origin=config.source_alias,
            limits=CycleLimits(
                interval_ms=config.commit_interval_ms,
                # A link that reads uncommitted records may carry a transaction that never ends: to
                # wait for its end would delay every commit.
                hold_max_ms=config.commit_hold_ms if config.is_read_committed else config.commit_interval_ms,
                # The queue keeps batches until their transaction ends. A transaction larger than
                # the queue would wait for batches that the full queue cannot accept.
                bytes_max=min(config.commit_bytes_max, config.queue_size_bytes // 2),
            ),
            clock=self._clock,
            metrics=TransactionMetrics(registry, link=config.link_name),
            timeout_ms=config.transaction_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
        )

    def _make_source(self) -> TranslatedSource:
        config = self._config
        opposite = (
            None
            if config.naming.policy is NamingPolicy.PREFIX or not config.is_syncing_groups
            else OppositeGroupNotes(self._source_client, target_alias=config.target_alias, clock=self._clock)
        )
        return TranslatedSource(config.source_bootstrap_servers, self._dialing.source, opposite=opposite)

    async def read_again(self) -> None:
        """Read what other daemons of the link have written."""
        if self._transactions is None:
            await self.translations.reload()
        if self._config.is_syncing_groups:
            await self._group_notes.load()

    def _make_mirror_maker(self, registry: CollectorRegistry) -> MirrorMakerTopics:
        config = self._config
        return MirrorMakerTopics(
            config,
            source=self._source_client,
            target=self._target_client,
            source_groups=self.source,
            translations=self.translations,
            downstream=self.target.places.downstream,
            metrics=CheckpointMetrics(
                registry,
                source=config.source_alias,
                target=config.target_alias,
                clock=self._clock,
                names_formats=config.figure_names,
            ),
            clock=self._clock,
        )

    def _make_acl_sync(self) -> AclSync:
        return AclSync(
            source=self._source_client,
            target=self._target_client,
            naming=self._config.naming,
            carries=lambda topic: carries_topic(self._record, topic),
            excluded_principals=self._config.acl_principal_blacklist,
            interval_ms=self._config.acl_sync_interval_ms,
        )

    async def _have_producers(self) -> None:
        """A producer id of ours for each site whose records may pass, noted at the target before
        they do.
        """
        if self._transactions is not None:
            return  # with transactions one producer writes everything
        for origin in sorted(self._origins - self.translations.producers.keys() - {self._config.target_alias}):
            await self.translations.have_producer(origin)


def _on_one_path(config: MirrorConfig) -> MirrorConfig:
    if config.is_transactional:
        return config
    changes = {name: value for name, value in ONE_PATH.items() if name not in config.model_fields_set}
    return config.model_copy(update=changes)
