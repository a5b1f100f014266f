"""Describes links to peers and operators: the site's view, its links, their logs, and what a
planned link would carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from dr.agent.answers.answering import ARBITER_TIMEOUT_MS, Answers, Context, Refusal, answers, refuse_argument
from dr.agent.arbiter import ArbiterSilent
from dr.agent.core.site_view import ViewedTopics, brief_view, shown_topics, unknown_link, viewed_topics, whole_view
from dr.agent.link_survey import survey_topics
from dr.agent.own_brokers import BrokerAnswer, are_unchanged, is_unfenced
from dr.sites.core.evidence import NOT_ASKED
from dr.sites.core.link_checks import group_warnings, record_problems
from dr.sites.core.unprotected_topics import UnprotectedTopic, unprotected_topics
from runtime.clock import Clock
from wire.client.connection import installed_version
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.rules.links import carries_the_same, other_site

SurveySecurity = Callable[[], site.SecuritySurvey]
"""Surveys the security of the own broker and its site; it may read files."""


class LinkDescriptions(Answers):
    """Reads what is stored and watched; changes nothing."""

    def __init__(self, site_name: str, clock: Clock, survey_security: SurveySecurity | None = None) -> None:
        super().__init__(site_name, clock)
        self._survey_security = survey_security
        self._views: dict[str, tuple[int, SiteView]] = {}
        self._topics: dict[str, tuple[tuple[int, tuple[str, ...]], ViewedTopics]] = {}
        self._lacking: dict[str, tuple[tuple[int, int], LinkRecord, list[UnprotectedTopic]]] = {}

    @answers
    async def GetSiteView(self, request: site.GetSiteViewRequest, _: Context) -> site.GetSiteViewReply:  # noqa: N802
        """Answer with this site's view for the site that asks."""
        facts = self._parts.cache.facts
        if problem := unknown_link(facts, asking_site=request.asking_site):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, problem)
        topics = self._viewed_topics(request.asking_site)
        view = self._view(request.asking_site, topics.version)
        unreadable = [
            site.UnreadableZnode(kind=place.kind, name=place.name, problem=problem)
            for place, problem in sorted(facts.unreadable.items())
        ]
        if request.known_version == view.version:
            return site.GetSiteViewReply(is_unchanged=True, unreadable=unreadable)
        if request.known_topics_version != topics.version:
            view = whole_view(view, topics.topics)
        return site.GetSiteViewReply(view=view, unreadable=unreadable)

    def _view(self, asking_site: str, topics_version: int) -> SiteView:
        cache = self._parts.cache
        known = self._views.get(asking_site)
        if known is None or known[0] != cache.changes:
            known = (cache.changes, brief_view(cache.facts, topics_version, asking_site=asking_site))
            self._views[asking_site] = known
        return known[1]

    def _viewed_topics(self, asking_site: str) -> ViewedTopics:
        facts, known = self._parts.cache.facts, self._topics.get(asking_site)
        made_from = self._parts.cache.topic_changes, shown_topics(facts, asking_site=asking_site)
        if known is None or known[0] != made_from:
            known = self._topics[asking_site] = made_from, viewed_topics(facts, made_from[1])
        return known[1]

    @answers
    async def SurveyLink(self, request: site.SurveyLinkRequest, _: Context) -> site.SurveyLinkReply:  # noqa: N802
        """Describe the topics that a planned link would carry from this site."""
        if problems := record_problems(request.record):
            refuse_argument(problems)
        parts = self._parts
        topics, count = await survey_topics(request.record, parts.cache.topic_names, parts.zookeeper)
        return site.SurveyLinkReply(
            site=self._site,
            version=installed_version(),
            topics=topics,
            topic_count=count,
            problems=self._overlaps(request.record),
            warnings=group_warnings(
                request.record, links=parts.cache.facts.links.values(), topics=parts.cache.topic_names
            ),
            arbiter_id=await self._arbiter_id(),
            security=None if self._survey_security is None else await asyncio.to_thread(self._survey_security),
        )

    async def _arbiter_id(self) -> str:
        try:
            return await self._parts.arbiter.identity(timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent:
            return ""

    @answers
    async def ListLinks(self, _: site.ListLinksRequest, __: Context) -> site.ListLinksReply:  # noqa: N802
        """Every link of the site, with what this process knows of the peers."""
        statuses = []
        for _name, record in sorted(self._parts.cache.facts.links.items()):
            peer = self._parts.peers.peer(other_site(record, self._site))
            statuses.append(
                site.LinkStatus(
                    record=record,
                    is_confirmed=self._parts.peers.is_confirmed(record),
                    is_peer_reachable=peer.is_reachable,
                    peer_seen_at_ms=peer.seen_at_ms,
                    contested_by=self._parts.peers.contested.get(record.name, ""),
                    lease=self._lease(record),
                    is_unknown_to_peer=self._parts.peers.is_unknown_to_peer(record),
                )
            )
        return site.ListLinksReply(site=self._site, links=statuses)

    def _lease(self, record: LinkRecord) -> site.LinkLease | None:
        lease = self._parts.leases.lease(record)
        if lease is not None:
            lease.failover_verdict = self._parts.failovers.verdict(record.name)
        return lease

    @answers
    async def DescribeLink(self, request: site.DescribeLinkRequest, _: Context) -> site.DescribeLinkReply:  # noqa: N802
        """Describe the log of every carried partition at this site, unless the request is brief."""
        store = self._parts.store
        (stored, _version), answers, protection, verification = await asyncio.gather(
            store.get(request.name),
            self._logs(request),
            store.protection(request.name),
            store.verification(request.name),
        )
        replies = [answer.reply for answer in answers if answer.reply is not None]
        peer = self._parts.peers.peer(other_site(stored, self._site))
        is_active = stored.active_site == self._site
        return site.DescribeLinkReply(
            protection=protection if is_active else None,
            verification=verification if is_active else None,
            rehearsal=self._parts.rehearsals.last(stored),
            peer_seen_at_ms=peer.seen_at_ms,
            site=self._site,
            record=stored,
            partitions=[item for reply in replies for item in reply.partitions],
            columns=[reply.columns for reply in replies if reply.HasField("columns")],
            log_versions={reply.node_id: reply.version for reply in replies if reply.version},
            are_logs_unchanged=are_unchanged(answers, request.known_log_versions),
            cuts=[item for reply in replies for item in reply.cuts],
            quarantines=[reply.quarantine for reply in replies if reply.quarantine.entries],
            enforced_epochs={
                answer.node_id: NOT_ASKED
                if answer.reply is None
                else answer.reply.link_epochs.get(stored.name, NOT_ASKED)
                for answer in answers
            },
            unfenced=[answer.node_id for answer in answers if is_unfenced(answer, stored)],
            unprotected=[
                site.UnprotectedTopic(topic=topic.topic, partitions=topic.partitions, reason=topic.reason)
                for topic in (() if request.is_brief else self._unprotected(stored))
            ],
        )

    async def _logs(self, request: site.DescribeLinkRequest) -> list[BrokerAnswer]:
        if request.is_brief:
            return []
        known_versions = request.known_log_versions if request.with_log_versions else None
        return await self._parts.brokers.observe(request.name, known_versions, accepts_columns=request.accepts_columns)

    def _unprotected(self, link: LinkRecord) -> list[UnprotectedTopic]:
        """The topics that the site lacks. They are found once while no topic changes, because there
        may be thousands of partitions, and a failover asks while writers wait.
        """
        cache, view = self._parts.cache, self._parts.peers.peer(other_site(link, self._site)).view
        made_from, known = (cache.topic_changes, view.topics_version), self._lacking.get(link.name)
        # a peer of an earlier release sends no version of its topics
        if known and view.topics_version and known[0] == made_from and carries_the_same(known[1], link):
            return known[2]
        found = unprotected_topics(cache.facts.topics, view.topics, link, site=self._site)
        self._lacking[link.name] = made_from, link, found
        return found
