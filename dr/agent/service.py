"""The site agent: one site's voice in links and disaster recovery (`wire/control/site.proto`),
hosted in every broker process.

All state is in the site's ZooKeeper (`links_store.py`), so any agent of the site gives the same
answers; what it keeps in memory are a watched copy (`site_cache.py`) and what its peers last said
(`peer_watch.py`). `cli` makes a `SiteAgentHost` before it starts the process's gRPC server and
calls `start` after it, when the own broker's address is known.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc

from dr.agent.arbiter import Arbiter, ArbiterSilent
from dr.agent.core.site_view import site_view, unknown_link
from dr.agent.equality_watch import EqualityWatch
from dr.agent.failover_watch import FailoverWatch
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.link_survey import survey_topics
from dr.agent.links_store import LinkConflict, LinksStore, LinkUnknown
from dr.agent.own_brokers import OwnBrokers
from dr.agent.peer_watch import PeerWatch
from dr.agent.protection_judge import ProtectionJudge
from dr.agent.rehearsals import Rehearsals
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.core.evidence import NOT_ASKED
from dr.sites.core.link_checks import overlap_problems, record_problems
from dr.sites.core.protection import UnprotectedTopic, unprotected_topics
from dr.sites.core.sync_policies import altered, leasing, reinstating
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper
from wire.client.connection import installed_version
from wire.control import broker_pb2 as broker
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.site_pb2_grpc import SiteAgentServicer
from wire.rules.links import KEPT_POLICY, MANUAL_POLICY, SyncPolicy, other_site
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode

SERVICE_NAME = "antipode.control.SiteAgent"
CONFIRM_TIMEOUT_MS = 5_000
CONFIRM_LEASES = 2
"""Leases that may pass besides: one runs out, and permits of the next one are granted."""
ADOPT_TIMEOUT_MS = 10_000
"""Used when the caller gives no timeout."""
ARBITER_TIMEOUT_MS = 3_000
ASKED_BY_MAX = 500
RUN_NAME = re.compile("[0-9a-z-]{1,100}")

Reply = TypeVar("Reply")
Context = grpc.aio.ServicerContext[Any, Any]


class Refusal(Exception):
    """An answer that is an error: status code and words."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def _answers(
    method: Callable[[SiteAgentService, Any, Context], Awaitable[Reply]],
) -> Callable[[SiteAgentService, Any, Context], Awaitable[Reply]]:
    """Turn the package's own errors into gRPC statuses."""

    @functools.wraps(method)
    async def answer(self: SiteAgentService, request: Any, context: Context) -> Reply:
        try:
            return await method(self, request, context)
        except Refusal as refusal:
            await context.abort(refusal.code, str(refusal))
        except LinkUnknown as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except LinkConflict as error:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        except MalformedZnode as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except DISCONNECTED as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"this site's ZooKeeper does not answer: {error!r}")

    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The parts of a started agent that its gRPC methods use."""

    zookeeper: ZooKeeper
    cache: SiteCache
    store: LinksStore
    brokers: OwnBrokers
    peers: PeerWatch
    judge: ProtectionJudge
    equality: EqualityWatch
    arbiter: Arbiter
    leases: LeaseKeeper
    failovers: FailoverWatch
    rehearsals: Rehearsals


SurveySecurity = Callable[[], site.SecuritySurvey]
"""Surveys the security of the own broker and its site; it may read files."""


class SiteAgentService(SiteAgentServicer):
    """Answers `SiteAgent`; UNAVAILABLE until the host has started."""

    def __init__(self, site_name: str, clock: Clock, survey_security: SurveySecurity | None = None) -> None:
        self._site = site_name
        self._survey_security = survey_security
        self._clock = clock
        self._running: AgentParts | None = None
        self._views: dict[str, tuple[int, SiteView]] = {}
        self._state_change = state_change_logger()

    def run_with(self, parts: AgentParts | None) -> None:
        """Answer requests with these parts from now on; None stops answering."""
        self._running = parts

    @property
    def _parts(self) -> AgentParts:
        if self._running is None:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, f"the agent of site {self._site} is not ready")
        return self._running

    @_answers
    async def GetSiteView(self, request: site.GetSiteViewRequest, _: Context) -> site.GetSiteViewReply:  # noqa: N802
        """Answer with this site's view for the site that asks."""
        facts = self._parts.cache.facts
        if problem := unknown_link(facts, asking_site=request.asking_site):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, problem)
        view = self._view(request.asking_site)
        unreadable = [
            site.UnreadableZnode(kind=place.kind, name=place.name, problem=problem)
            for place, problem in sorted(facts.unreadable.items())
        ]
        if request.known_version == view.version:
            return site.GetSiteViewReply(is_unchanged=True, unreadable=unreadable)
        return site.GetSiteViewReply(view=view, unreadable=unreadable)

    def _view(self, asking_site: str) -> SiteView:
        cache = self._parts.cache
        known = self._views.get(asking_site)
        if known is None or known[0] != cache.changes:
            known = (cache.changes, site_view(cache.facts, asking_site=asking_site))
            self._views[asking_site] = known
        return known[1]

    @_answers
    async def SurveyLink(self, request: site.SurveyLinkRequest, _: Context) -> site.SurveyLinkReply:  # noqa: N802
        """Describe the topics that a planned link would carry from this site."""
        if problems := record_problems(request.record):
            _refuse_argument(problems)
        parts = self._parts
        topics, count = await survey_topics(request.record, parts.cache.topic_names, parts.zookeeper)
        return site.SurveyLinkReply(
            site=self._site,
            version=installed_version(),
            topics=topics,
            topic_count=count,
            problems=self._overlaps(request.record),
            arbiter_id=await self._arbiter_id(),
            security=None if self._survey_security is None else await asyncio.to_thread(self._survey_security),
        )

    async def _arbiter_id(self) -> str:
        try:
            return await self._parts.arbiter.identity(timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent:
            return ""

    def _overlaps(self, record: LinkRecord) -> list[str]:
        cache = self._parts.cache
        return overlap_problems(record, site=self._site, links=cache.facts.links.values(), topics=cache.topic_names)

    @_answers
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
                )
            )
        return site.ListLinksReply(site=self._site, links=statuses)

    def _lease(self, record: LinkRecord) -> site.LinkLease | None:
        lease = self._parts.leases.lease(record)
        if lease is not None:
            lease.failover_verdict = self._parts.failovers.verdict(record.name)
        return lease

    @_answers
    async def CreateLink(self, request: site.CreateLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Store a new link after this site's own checks."""
        record = request.record
        if problems := record_problems(record):
            _refuse_argument(problems)
        if self._site not in (record.source_site, record.target_site):
            _refuse_argument([f"site {self._site} is neither its source nor its target"])
        if problems := self._overlaps(record):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, "; ".join(problems))
        if record.lease_ms:
            await self._check_unused(record)
        stored = await self._parts.store.create(record)
        self._state_change.info("link created", link=stored.name, epoch=stored.epoch, active=stored.active_site)
        return site.LinkReply(record=stored)

    async def _check_unused(self, record: LinkRecord) -> None:
        """Refuse a new link that the arbiter knows in a higher epoch: its site would not be let
        write.
        """
        try:
            held = await self._parts.arbiter.record(record.name, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(silent)) from silent
        if held is not None and (held.record.epoch, held.record.active_site) != (record.epoch, record.active_site):
            message = (
                f"the arbiter knows another link {record.name!r}, at epoch {held.record.epoch} with "
                f"{held.record.active_site} active: choose another name, or another chroot for the arbiter"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)

    @_answers
    async def DeleteLink(self, request: site.DeleteLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Forget a link and its accounts, also at the arbiter; topics and records stay."""
        stored, _version = await self._parts.store.get(request.name)
        if stored.lease_ms and stored.epoch == request.epoch:
            await self._forget_at_arbiter(request.name)
        stored = await self._parts.store.delete(request.name, epoch=request.epoch)
        self._state_change.info("link deleted", link=stored.name, epoch=stored.epoch)
        return site.LinkReply(record=stored)

    async def _forget_at_arbiter(self, link: str) -> None:
        try:
            await self._parts.arbiter.delete(link, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            message = (
                f"{silent}, and would keep link {link!r}: take the lease away first (antipode links alter --lease-ms 0)"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message) from silent

    @_answers
    async def AdoptLink(self, request: site.AdoptLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Store what supersedes, and wait until every live broker enforces what is stored."""
        await self._check_arbiter(request.record)
        stored = await self._parts.store.adopt(request.record, account=request.account_json)
        self._state_change.info(
            "link adopted",
            link=stored.name,
            epoch=stored.epoch,
            active=stored.active_site,
            phase=stored.phase,
            sync_policy=stored.sync_policy,
        )
        await self._enforced(stored, request.timeout_ms)
        return site.LinkReply(record=stored)

    async def _check_arbiter(self, record: LinkRecord) -> None:
        """Refuse what would make this site active under a lease while the arbiter is silent, or
        names another epoch: nothing is stored then. A site that is active stays so.
        """
        stored, _version = await self._parts.store.get(record.name)
        if not record.lease_ms or record.active_site != self._site or stored.active_site == self._site:
            return
        try:
            held = await self._parts.arbiter.record(record.name, timeout_ms=ARBITER_TIMEOUT_MS)
        except ArbiterSilent as silent:
            message = (
                f"{silent}: {self._site} becomes active for link {record.name!r} only with the arbiter, which may have "
                "granted permits to the other site"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message) from silent
        newer = held is not None and (
            held.record.epoch > record.epoch
            or (held.record.epoch == record.epoch and held.record.active_site != record.active_site)
        )
        if held is not None and newer:
            message = (
                f"the arbiter is at epoch {held.record.epoch} of link {record.name!r} with {held.record.active_site} "
                f"active, not at {record.epoch} with {record.active_site}"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)

    @_answers
    async def GrantVow(self, request: site.GrantVowRequest, _: Context) -> site.GrantVowReply:  # noqa: N802
        """Promise not to be promoted over the epoch for one lease."""
        holder = Holder(request.asking_site, request.node_id)
        if request.is_release:
            await self._parts.store.release_vow(request.link, holder)
            return site.GrantVowReply()
        try:
            await self._parts.store.grant_vow(
                request.link, epoch=request.epoch, asking_site=request.asking_site, holder=holder
            )
        except LinkConflict as conflict:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(conflict)) from conflict
        return site.GrantVowReply()

    @_answers
    async def AlterLink(self, request: site.AlterLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Change the link's policies at its active site, where acks=all waits, and wait until every
        live broker enforces them.
        """
        stored, _version = await self._parts.store.get(request.name)
        if stored.active_site != self._site:
            message = (
                f"link {stored.name!r} is changed at its active site, which is {stored.active_site}, not {self._site}"
            )
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        record = _altered(stored, request, now_ms=self._clock.now_ms())
        if problems := record_problems(record):
            _refuse_argument(problems)
        if stored.lease_ms and record.lease_ms not in (0, stored.lease_ms):
            _refuse_argument([f"the lease is {stored.lease_ms} ms: set it to 0 first, then to {record.lease_ms}"])
        if request.is_dry_run:
            return site.LinkReply(record=record)
        may_open = self._parts.peers.is_confirmed(stored)
        if await self._parts.store.adopt(record) != record:
            raise Refusal(grpc.StatusCode.ABORTED, f"another change of link {stored.name!r} came first: look again")
        if record is not stored:
            self._state_change.info(
                "link altered",
                link=record.name,
                epoch=record.epoch,
                revision=record.revision,
                sync_policy=record.sync_policy,
                sync_timeout_ms=record.sync_timeout_ms,
                former_sync_policy=stored.sync_policy,
                reinstate_policy=record.reinstate_policy,
                lease_ms=record.lease_ms,
                failover_mode=record.failover_mode,
            )
        if record.lease_ms and may_open:
            self._parts.leases.request_open(record)
        await self._enforced(record, request.timeout_ms)
        return site.LinkReply(record=record)

    async def _enforced(self, stored: LinkRecord, timeout_ms: int) -> None:
        """Wait until every live broker enforces the record."""
        if problems := await self._parts.brokers.wait_enforced(stored, timeout_ms=timeout_ms or ADOPT_TIMEOUT_MS):
            message = f"epoch {stored.epoch} is stored at site {self._site}, but not enforced: {'; '.join(problems)}"
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message)

    @_answers
    async def ConfirmLink(self, request: site.ConfirmSiteLinkRequest, _: Context) -> site.LinkReply:  # noqa: N802
        """Confirm the stored epoch by the operator's decision, without asking the peer."""
        stored, _version = await self._parts.store.get(request.name)
        if stored.epoch != request.epoch:
            message = f"link {stored.name!r} is at epoch {stored.epoch}, not {request.epoch}"
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)
        if stored.lease_ms:
            self._parts.leases.request_open(stored)
        brokers, timeout_ms = self._parts.brokers, CONFIRM_TIMEOUT_MS + CONFIRM_LEASES * stored.lease_ms
        if problems := await brokers.confirm(stored.name, epoch=stored.epoch, timeout_ms=timeout_ms):
            if lease := self._parts.leases.lease(stored):
                problems.append(lease.problem)
            raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, "; ".join(filter(None, problems)))
        self._parts.peers.note_confirmed(stored.name, stored.epoch)
        self._state_change.info("link confirmed by the operator", link=stored.name, epoch=stored.epoch)
        return site.LinkReply(record=stored)

    @_answers
    async def DescribeLink(self, request: site.DescribeLinkRequest, _: Context) -> site.DescribeLinkReply:  # noqa: N802
        """Describe the log of every carried partition at this site."""
        store = self._parts.store
        (stored, _version), answers, protection, verification = await asyncio.gather(
            store.get(request.name),
            self._parts.brokers.describe(request.name),
            store.protection(request.name),
            store.verification(request.name),
        )
        replies = [answer.reply for answer in answers if answer.reply is not None]
        peer = self._parts.peers.peer(other_site(stored, self._site))
        is_active = stored.active_site == self._site
        return site.DescribeLinkReply(
            protection=protection if is_active else None,
            verification=verification if is_active else None,
            rehearsal=self._parts.rehearsals.last(stored.name),
            peer_seen_at_ms=peer.seen_at_ms,
            site=self._site,
            record=stored,
            partitions=[item for reply in replies for item in reply.partitions],
            cuts=[item for reply in replies for item in reply.cuts],
            enforced_epochs={
                answer.node_id: NOT_ASKED
                if answer.reply is None
                else answer.reply.link_epochs.get(stored.name, NOT_ASKED)
                for answer in answers
            },
            unprotected=[
                site.UnprotectedTopic(topic=topic.topic, partitions=topic.partitions, reason=topic.reason)
                for topic in self._unprotected(stored)
            ],
        )

    def _unprotected(self, link: LinkRecord) -> list[UnprotectedTopic]:
        peer = self._parts.peers.peer(other_site(link, self._site))
        return unprotected_topics(self._parts.cache.facts.topics, peer.view.topics, link, site=self._site)

    @_answers
    async def DescribeGroups(  # noqa: N802
        self, request: site.DescribeGroupsRequest, _: Context
    ) -> site.DescribeGroupsReply:
        """Committed offsets of the groups that a link carries."""
        stored, _version = await self._parts.store.get(request.link)
        return await self._parts.brokers.describe_groups(stored.name, is_brief=request.is_brief)

    @_answers
    async def DescribeGroupMembers(  # noqa: N802
        self, request: broker.DescribeGroupMembersRequest, _: Context
    ) -> broker.DescribeGroupMembersReply:
        """The members of the groups that a link carries."""
        stored, _version = await self._parts.store.get(request.link)
        return await self._parts.brokers.group_members(stored.name)

    @_answers
    async def TakeGroupMembers(  # noqa: N802
        self, request: broker.TakeGroupMembersRequest, _: Context
    ) -> broker.TakeGroupMembersReply:
        """Give the members of the fenced site's groups to this site's coordinators."""
        return await self._parts.brokers.take_group_members(request)

    @_answers
    async def RecordFailover(  # noqa: N802
        self, request: site.RecordFailoverRequest, _: Context
    ) -> site.RecordFailoverReply:
        """Keep the account of a failover."""
        await self._parts.store.record_failover(request.link, epoch=request.epoch, document=request.json)
        return site.RecordFailoverReply()

    @_answers
    async def ListFailovers(  # noqa: N802
        self, request: site.ListFailoversRequest, _: Context
    ) -> site.ListFailoversReply:
        """Accounts kept at this site, oldest first."""
        store = self._parts.store
        accounts = await store.failovers(request.link)
        return site.ListFailoversReply(
            json=accounts.values(), runs=await store.runs(request.link) if request.with_runs else ()
        )

    @_answers
    async def RequestFailover(  # noqa: N802
        self, request: site.RequestFailoverRequest, _: Context
    ) -> site.RequestFailoverReply:
        """A failover that an application asks for."""
        stored, _version = await self._parts.store.get(request.link)
        if stored.active_site == self._site:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, f"{self._site} is active for link {stored.name} already")
        if not request.asked_by.strip():
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "asked_by is empty: accepted is who asks, and why")
        try:
            report = await self._parts.failovers.request(stored, asked_by=request.asked_by.strip()[:ASKED_BY_MAX])
        except OperationalFailure as failure:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, str(failure)) from failure
        if not report.is_done:
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, report.reason)
        account = "" if report.account is None else report.account.to_json()
        return site.RequestFailoverReply(epoch=report.epoch, json=account)

    @_answers
    async def RecordRun(self, request: site.RecordRunRequest, _: Context) -> site.RecordRunReply:  # noqa: N802
        """Keep how a run of a failover goes."""
        if not RUN_NAME.fullmatch(request.run):
            raise Refusal(
                grpc.StatusCode.INVALID_ARGUMENT, f"run {request.run!r}: accepted are letters, digits and dashes"
            )
        await self._parts.store.record_run(request.link, run=request.run, document=request.json)
        return site.RecordRunReply()

    @_answers
    async def RecordRehearsal(  # noqa: N802
        self, request: site.RecordRehearsalRequest, _: Context
    ) -> site.RecordRehearsalReply:
        """Keep the result of the last rehearsal on clones of this site's logs."""
        await self._parts.rehearsals.keep(request.link, request.rehearsal)
        return site.RecordRehearsalReply()


def _altered(stored: LinkRecord, request: site.AlterLinkRequest, *, now_ms: int) -> LinkRecord:
    """The record with the policies that a request names; the record itself when it has them."""
    record = stored
    if request.sync_policy != KEPT_POLICY:
        known = {policy.value: policy for policy in SyncPolicy}
        if request.sync_policy not in known:
            accepted = ", ".join(map(repr, (*known, KEPT_POLICY)))
            _refuse_argument([f"sync policy {request.sync_policy!r}: accepted are {accepted}"])
        policy = known[request.sync_policy]
        record = altered(
            record,
            policy=policy,
            timeout_ms=request.sync_timeout_ms,
            bound_ms=request.sync_bound_ms,
            now_ms=now_ms,
        )
    if request.reinstate_policy:
        wanted = "" if request.reinstate_policy == MANUAL_POLICY else request.reinstate_policy
        record = reinstating(record, policy=wanted, now_ms=now_ms)
    return leasing(
        record,
        lease_ms=request.lease_ms if request.HasField("lease_ms") else None,
        mode=_mode(request.failover_mode) if request.failover_mode else None,
        lag_records_max=request.failover_lag_records_max if request.HasField("failover_lag_records_max") else None,
        lag_ms_max=request.failover_lag_ms_max if request.HasField("failover_lag_ms_max") else None,
        now_ms=now_ms,
    )


def _mode(text: str) -> str:
    return "" if text == MANUAL_POLICY else text


def _refuse_argument(problems: list[str]) -> NoReturn:
    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "; ".join(problems))
