"""Collects evidence: it asks both sites of a link in the order that keeps the evidence consistent,
the target first and then the source. Under a fence the order does not matter, and both are asked at
once.

A source that did not answer within its deadline is not asked again for a moment, so that lost
packets do not slow every step down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import grpc
from msgspec import Struct

from dr.sites.core.access_rules import access_rules
from dr.sites.core.evidence import (
    Evidence,
    Promotion,
    SiteEvidence,
    SiteGroups,
    described_logs,
    site_groups,
    truncations_of,
)
from dr.sites.core.link_checks import deposed_problems
from dr.sites.core.log_columns import LogsInColumns, PartitionOrder, PartitionOrders
from dr.sites.core.loss import LossAccount
from dr.sites.core.mirror_reports import failing_sentences
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from dr.sites.site_client import SiteClient, SiteRefused, SiteUnreachable
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.partition_columns_reader import MalformedColumns
from wire.control.site_pb2 import (
    DescribeGroupsReply,
    DescribeLinkReply,
    GetSiteViewReply,
    ListFailoversReply,
    ListLinksReply,
    ObserveLinkRequest,
)
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.rules.links import carries_the_same, carries_topic

SILENCE_MS = 2_000


class _Kept(Struct, frozen=True):
    """A promotion, with the version of the account that a site keeps of it."""

    version: int
    promotion: Promotion


class _Carried(Struct):
    """The partitions that the link carries by a site's view, and those of them that had no leader
    when the site led `led`.
    """

    view: SiteView
    link: LinkRecord
    partitions: frozenset[TopicPartition]
    led: PartitionOrder | None = None
    leaderless: frozenset[TopicPartition] = frozenset()


class LinkObserver:
    """Asks two sites about one link."""

    def __init__(
        self, link: str, *, target: SiteClient, source: SiteClient | None, clock: Clock, reuses_logs: bool = False
    ) -> None:
        """`reuses_logs`: while the logs of a site do not change, the evidence has them as they were
        asked for last, with the times at which a mirror saw the source then.
        """
        self._reuses_logs = reuses_logs
        self._logs: dict[str, tuple[dict[int, int], Mapping[TopicPartition, PartitionPosition]]] = {}
        self._link = link
        self._target = target
        self._source = source
        self._clock = clock
        self._ask_again_at_ms = 0.0
        self._source_problem = "no agent address is known"
        self._views: dict[str, SiteView] = {}
        # The partitions that the link carries, by site.
        self._carried: dict[str, _Carried] = {}
        self._orders = PartitionOrders()
        # The accounts of each site, by epoch.
        self._promotions: dict[str, dict[int, _Kept]] = {}

    def reuse_logs(self) -> None:
        """From here on, evidence has unchanged logs as they were asked for last: under a fence no
        later report of a mirror counts.
        """
        self._reuses_logs = True

    async def evidence(
        self,
        *,
        with_groups: bool = False,
        with_source: bool = True,
        is_source_final: bool = False,
        may_target_refuse: bool = False,
    ) -> Evidence:
        """Evidence of both sites now, with groups' committed offsets on request. SiteRefused when
        the target does not know the link, unless it `may_target_refuse`: then its refusal is the
        problem in the evidence. `is_source_final`: the source's logs do not grow, so both may be
        asked at once.
        """
        accepted = (SiteUnreachable, SiteRefused) if may_target_refuse else (SiteUnreachable,)
        source: SiteEvidence | None = None
        if with_source and is_source_final:
            (target, target_problem), source = await asyncio.gather(
                self._ask_target(accepted, with_groups=with_groups), self._ask_source(with_groups=with_groups)
            )
        else:
            # The target is asked first, so that a copy which is ahead of the answers is really
            # ahead of the source.
            target, target_problem = await self._ask_target(accepted, with_groups=with_groups)
            if with_source:
                source = await self._ask_source(with_groups=with_groups)
        return Evidence(
            link=self._link,
            target_site=self._target.name,
            target=target,
            source=source,
            target_problem=target_problem,
            source_problem=self._source_problem if with_source and source is None else "",
        )

    async def _ask_target(
        self, accepted: tuple[type[OperationalFailure], ...], *, with_groups: bool
    ) -> tuple[SiteEvidence | None, str]:
        """The target's evidence, or its problem if it is one of the `accepted` failures."""
        try:
            return await self.site_evidence(self._target, with_groups=with_groups), ""
        except accepted as error:
            return None, str(error)

    async def _ask_source(self, *, with_groups: bool) -> SiteEvidence | None:
        if self._source is None or self._clock.monotonic_ms() < self._ask_again_at_ms:
            return None
        try:
            return await self.site_evidence(self._source, with_groups=with_groups)
        except (SiteUnreachable, SiteRefused) as error:
            self._source_problem = str(error)
            # Without this pause each step of a failover would wait for the deadline of a lost site.
            self._ask_again_at_ms = self._clock.monotonic_ms() + SILENCE_MS
            return None

    async def source_groups(self) -> SiteGroups | None:
        """Return the groups' committed offsets at the source, None when it does not answer."""
        if self._source is None or self._clock.monotonic_ms() < self._ask_again_at_ms:
            return None
        groups = await self._groups(self._source)
        return None if groups.problems else groups

    async def _groups(self, client: SiteClient) -> SiteGroups:
        try:
            return site_groups(await client.group_offsets(self._link))
        except (SiteUnreachable, SiteRefused) as error:
            return SiteGroups(problems=(str(error),))

    async def site_evidence(self, client: SiteClient, *, with_groups: bool = False) -> SiteEvidence:
        """Ask one site for all its evidence."""
        reply = await client.observe_link(
            ObserveLinkRequest(
                link=self._link,
                asking_site=self._peer_of(client),
                known_view_version=self._views.get(client.name, SiteView()).version,
                known_topics_version=self._views.get(client.name, SiteView()).topics_version,
                known_account_versions={
                    epoch: kept.version for epoch, kept in self._promotions.get(client.name, {}).items()
                },
                with_groups=with_groups,
                with_log_versions=self._reuses_logs,
                known_log_versions=self._logs[client.name][0] if client.name in self._logs else None,
                accepts_columns=True,
            )
        )
        description, links, words = reply.description, reply.links, reply.groups
        view, promotions = self._view(client, reply.view), self._promotions_at(client, reply.failovers)
        partitions = self._positions(client, description)
        return SiteEvidence(
            site=client.name,
            seen_at_ms=self._clock.now_ms(),
            record=description.record,
            enforced_epochs=dict(description.enforced_epochs),
            unfenced_brokers=tuple(description.unfenced),
            partitions=partitions,
            leaderless=self._leaderless(client.name, view, description.record, partitions),
            cuts=truncations_of(client.name, description.cuts),
            promotions=promotions,
            mirror_age_ms=_age_ms(words, self._clock.now_ms()),
            mirror_round_ms=words.report_round_ms,
            resting_mirror_age_ms=words.resting_ms_ago,
            mirror_problems=failing_sentences(words.failing),
            is_confirmed=_is_confirmed(links, self._link),
            arbiter_problem=_arbiter_problem(links, self._link),
            groups=site_groups(words) if with_groups else None,
            access=access_rules(words),
            peer_seen_at_ms=description.peer_seen_at_ms or UNKNOWN,
            unprotected=tuple(
                UnprotectedTopic(topic=topic.topic, partitions=tuple(topic.partitions), reason=topic.reason)
                for topic in description.unprotected
            ),
            deposed=_deposed(client.name, description.record, links, view),
        )

    def _view(self, client: SiteClient, reply: GetSiteViewReply) -> SiteView:
        """The site's view; only what has changed since the last query is sent again."""
        if reply.is_unchanged:
            return self._views[client.name]
        view = reply.view
        if view.has_known_topics:
            view.topics.extend(self._views[client.name].topics)
            view.has_known_topics = False
        self._views[client.name] = view
        return view

    def _positions(
        self, client: SiteClient, description: DescribeLinkReply
    ) -> Mapping[TopicPartition, PartitionPosition]:
        if description.are_logs_unchanged:
            return self._logs[client.name][1]
        try:
            partitions = described_logs(description.partitions, description.columns, self._orders)
        except MalformedColumns as error:
            raise SiteRefused(f"site {client.name}: {error}", grpc.StatusCode.INTERNAL) from error
        self._logs.pop(client.name, None)
        if description.log_versions:
            self._logs[client.name] = dict(description.log_versions), partitions
        return partitions

    def _leaderless(
        self, site: str, view: SiteView, link: LinkRecord, led: Mapping[TopicPartition, PartitionPosition]
    ) -> frozenset[TopicPartition]:
        """The partitions that the link carries and that no broker of the site leads."""
        known = self._carried.get(site)
        order = led.order if isinstance(led, LogsInColumns) else None
        if known is None or not _have_same_topics(known.view, view) or not carries_the_same(known.link, link):
            known = self._carried[site] = _Carried(view, link, frozenset(_carried(view, link)))
        elif order is not None and known.led is order:
            return known.leaderless
        known.led, known.leaderless = order, known.partitions.difference(led)
        return known.leaderless

    def _promotions_at(self, client: SiteClient, reply: ListFailoversReply) -> tuple[Promotion, ...]:
        """The promotions of which the site keeps the account, oldest first. The site sends only
        accounts that are new or have changed since the last query: each has a line for every
        partition.
        """
        known = self._promotions.get(client.name, {})
        if reply.json and not reply.epochs:  # an agent of an earlier release sends all accounts, without versions
            return tuple(LossAccount.from_json(document).promotion for document in reply.json)
        sent = dict(zip(reply.epochs, reply.json, strict=True))
        found = {
            epoch: _Kept(version, LossAccount.from_json(sent[epoch]).promotion) if epoch in sent else known[epoch]
            for epoch, version in sorted(reply.versions.items())
        }
        self._promotions[client.name] = found
        return tuple(kept.promotion for kept in found.values())

    def _peer_of(self, client: SiteClient) -> str:
        # By name: a caller may have another client of the target's site.
        if client.name == self._target.name:
            return self._source.name if self._source is not None else ""
        return self._target.name


def _age_ms(words: DescribeGroupsReply, now_ms: int) -> int:
    """Return the time (ms) between the mirror's last report and the answer; UNKNOWN if it never
    reported.
    """
    return max(0, (words.answered_at_ms or now_ms) - words.synced_at_ms) if words.synced_at_ms else UNKNOWN


def _carried(view: SiteView, link: LinkRecord) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, state.partition)
        for topic in view.topics
        if carries_topic(link, topic.name)
        for state in topic.partitions
    }


def _have_same_topics(one: SiteView, other: SiteView) -> bool:
    """True if both views are known to have the same topics; a site of an earlier release sends no
    version of them.
    """
    return one is other or (one.topics_version != 0 and one.topics_version == other.topics_version)


def _deposed(site: str, record: LinkRecord, links: ListLinksReply, view: SiteView) -> tuple[str, ...]:
    if record.active_site != site:
        return ()
    records = [status.record for status in links.links]
    return tuple(deposed_problems(record, links=records, topics=[topic.name for topic in view.topics]))


def _is_confirmed(reply: ListLinksReply, link: str) -> bool:
    return any(status.is_confirmed for status in reply.links if status.record.name == link)


def _arbiter_problem(reply: ListLinksReply, link: str) -> str:
    leases = [one.lease for one in reply.links if one.record.name == link and one.HasField("lease")]
    return "" if not leases or any(one.is_arbiter_reachable for one in leases) else leases[0].problem
