"""A client of one site's agents. Any agent can answer; the client asks the agent that answered last
first, and every call has a deadline.

All calls are idempotent, so an unanswered call is repeated at the next agent. Used by commands
(links, failover, drills); an agent asks its peers itself (`dr/agent/peer_watch.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from msgspec import Struct

from dr.sites.channels import UNANSWERED, Channels, is_interrupted, problem_of
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from wire.control import broker_pb2 as broker
from wire.control import site_pb2 as site
from wire.control.clients import ControllerClient
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.rules.links import KEPT_POLICY, MANUAL_POLICY, FailoverMode, ReinstatePolicy, SyncPolicy

ASK_TIMEOUT_MS = 3_000
STORE_TIMEOUT_MS = 6_000
COMMAND_PATIENCE_MS = 15_000
"""The patience (ms) of commands: longer than a busy machine needs to renew a ZooKeeper session."""
PROBE_SHARE = 1 / 3
"""The part of a deadline in which the agent must answer a small question, so that a slow answer is
awaited for longer.
"""
CONFIRM_LEASES = 2
"""Further leases that a site may need to confirm a link: one ends, and the next one is granted."""


class SiteUnreachable(OperationalFailure):
    """No agent of the site answered in time."""


class SiteInterrupted(SiteUnreachable):
    """No agent of the site answered, but one is there and cannot answer at the moment."""


class SiteRefused(OperationalFailure):
    """An agent answered with an error."""

    def __init__(self, message: str, code: grpc.StatusCode) -> None:
        super().__init__(message)
        self.code = code


class _NoAnswer(Exception):
    """One agent did not answer; `is_deadline`: it had the whole time; `is_interrupted`: it is there
    and cannot answer at the moment.
    """

    def __init__(self, message: str, *, is_deadline: bool, is_interrupted: bool) -> None:
        super().__init__(message)
        self.is_deadline = is_deadline
        self.is_interrupted = is_interrupted


class LinkChanges(Struct, frozen=True, kw_only=True):
    """The changes to a running link; None keeps a value, and `sync_timeout_ms` 0 the known one."""

    sync: SyncPolicy | None = None
    sync_timeout_ms: int = 0
    sync_bound_ms: int = 0
    reinstate: ReinstatePolicy | None = None
    lease_ms: int | None = None
    failover_mode: FailoverMode | None = None
    failover_lag_records_max: int | None = None
    failover_lag_ms_max: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        return self == LinkChanges(sync_timeout_ms=self.sync_timeout_ms, sync_bound_ms=self.sync_bound_ms)


class SiteClient:
    """Calls to one site. `name` is the site's name in messages; `ask_timeout_ms` is the deadline of
    the calls that only read. For `patience_ms` a call is repeated while an agent is there and
    cannot answer, and a slow answer is awaited while its agent answers small questions; a site
    whose agents are silent is never waited for.
    """

    def __init__(
        self,
        name: str,
        agents: Sequence[str],
        channels: Channels,
        *,
        ask_timeout_ms: int = ASK_TIMEOUT_MS,
        patience_ms: int = 0,
    ) -> None:
        if not agents:
            raise OperationalFailure(f"site {name}: no agent address is known")
        self.name = name
        self.agents = tuple(agents)
        self._channels = channels
        self._ask_timeout_ms = ask_timeout_ms
        self._patience_ms = patience_ms
        self._first = self.agents[0]

    def controller(self, *, timeout_ms: float) -> ControllerClient:
        """A client of the site's active controller, which the agents' processes know; the caller
        closes it.
        """
        return ControllerClient(lambda: self.agents, timeout_ms=timeout_ms, dial=self._channels.dial)

    async def view(self, *, asking_site: str = "") -> SiteView:
        """The site as it looks to `asking_site`."""
        return (await self.look(asking_site=asking_site)).view

    async def look(self, *, asking_site: str = "", known_version: int = 0) -> site.GetSiteViewReply:
        """The view, unless it still has the known version, and the znodes of the site that cannot
        be parsed.
        """
        request = site.GetSiteViewRequest(asking_site=asking_site, known_version=known_version)
        reply: site.GetSiteViewReply = await self._call("GetSiteView", request)
        return reply

    async def links(self) -> site.ListLinksReply:
        """Every link, with the answering agent's report on its peers."""
        reply: site.ListLinksReply = await self._call("ListLinks", site.ListLinksRequest())
        return reply

    async def describe_link(self, name: str, *, is_brief: bool = False) -> site.DescribeLinkReply:
        """Return what is stored of the link, and the log of every partition unless `is_brief`."""
        request = site.DescribeLinkRequest(name=name, is_brief=is_brief)
        reply: site.DescribeLinkReply = await self._call("DescribeLink", request)
        return reply

    async def group_offsets(self, link: str) -> site.DescribeGroupsReply:
        """Committed offsets of the groups that the link carries."""
        reply: site.DescribeGroupsReply = await self._call("DescribeGroups", site.DescribeGroupsRequest(link=link))
        return reply

    async def group_members(self, link: str, *, timeout_ms: int) -> Sequence[broker.GroupMembers]:
        """The members of the groups that the link carries, by group; empty if the site's release
        does not have this call.
        """
        request = broker.DescribeGroupMembersRequest(link=link)
        try:
            reply: broker.DescribeGroupMembersReply = await self._call(
                "DescribeGroupMembers", request, timeout_ms=timeout_ms
            )
        except SiteRefused as refused:
            if refused.code is grpc.StatusCode.UNIMPLEMENTED:
                return ()
            raise
        return reply.groups

    async def take_group_members(
        self, link: str, *, epoch: int, groups: Sequence[broker.GroupMembers], timeout_ms: int
    ) -> broker.TakeGroupMembersReply:
        """Send members of the fenced site's groups to this site, which is promoted and not
        confirmed yet.
        """
        request = broker.TakeGroupMembersRequest(link=link, epoch=epoch, groups=groups)
        reply: broker.TakeGroupMembersReply = await self._call("TakeGroupMembers", request, timeout_ms=timeout_ms)
        return reply

    async def observe_link(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        """Everything that the site knows of a link, in one call, or in several ones if the site's
        release does not have this call.
        """
        try:
            reply: site.ObserveLinkReply = await self._call("ObserveLink", request)
        except SiteRefused as refused:
            if refused.code is grpc.StatusCode.UNIMPLEMENTED:
                return await self._observe_in_parts(request)
            raise
        return reply

    async def _observe_in_parts(self, request: site.ObserveLinkRequest) -> site.ObserveLinkReply:
        link = request.link
        description, view, links, failovers, groups = await asyncio.gather(
            self.describe_link(link),
            self.look(asking_site=request.asking_site, known_version=request.known_view_version),
            self.links(),
            self.changed_failovers(link, request.known_account_versions),
            self.group_offsets(link) if request.with_groups else self.mirror_reports(link),
        )
        return site.ObserveLinkReply(
            description=description, view=view, links=links, failovers=failovers, groups=groups
        )

    async def mirror_reports(self, link: str) -> site.DescribeGroupsReply:
        """Return the time until which the link's mirror had carried all groups' offsets
        (`synced_at_ms`), and its failing daemons.
        """
        request = site.DescribeGroupsRequest(link=link, is_brief=True)
        reply: site.DescribeGroupsReply = await self._call("DescribeGroups", request)
        return reply

    async def survey_link(self, record: LinkRecord) -> site.SurveyLinkReply | None:
        """Describe the topics that a planned link would carry from this site; None if the site's
        release does not have this call.
        """
        request = site.SurveyLinkRequest(record=record)
        try:
            reply: site.SurveyLinkReply = await self._call("SurveyLink", request, timeout_ms=STORE_TIMEOUT_MS)
        except SiteRefused as refused:
            if refused.code is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        return reply

    async def create_link(self, record: LinkRecord) -> LinkRecord:
        """Store a new link at this site."""
        request = site.CreateLinkRequest(record=record)
        reply: site.LinkReply = await self._call("CreateLink", request, timeout_ms=STORE_TIMEOUT_MS)
        return reply.record

    async def delete_link(self, name: str, *, epoch: int) -> LinkRecord:
        """Forget a link at this site."""
        request = site.DeleteLinkRequest(name=name, epoch=epoch)
        reply: site.LinkReply = await self._call("DeleteLink", request, timeout_ms=STORE_TIMEOUT_MS)
        return reply.record

    async def adopt_link(
        self, record: LinkRecord, *, timeout_ms: int, account: str = "", unless_accounted: bool = False
    ) -> site.LinkReply:
        """Store a superseding record, together with its epoch's account if given, and wait until
        every broker enforces it; return the stored record, and whether its leaders are elected.
        `unless_accounted`: SiteRefused once the site has the account of the epoch before.
        """
        request = site.AdoptLinkRequest(
            record=record, timeout_ms=timeout_ms, account_json=account, unless_accounted=unless_accounted
        )
        reply: site.LinkReply = await self._call("AdoptLink", request, timeout_ms=timeout_ms + ASK_TIMEOUT_MS)
        return reply

    async def alter_link(self, name: str, changes: LinkChanges, *, is_dry_run: bool, timeout_ms: int) -> LinkRecord:
        """Change the link's policies at this site, which must be the active one, and wait until
        every broker enforces them.
        """
        sync, reinstate, mode = changes.sync, changes.reinstate, changes.failover_mode
        request = site.AlterLinkRequest(
            name=name,
            sync_policy=KEPT_POLICY if sync is None else sync.value,
            sync_timeout_ms=changes.sync_timeout_ms,
            sync_bound_ms=changes.sync_bound_ms,
            reinstate_policy="" if reinstate is None else reinstate.value or MANUAL_POLICY,
            lease_ms=changes.lease_ms,
            failover_mode="" if mode is None else mode.value or MANUAL_POLICY,
            failover_lag_records_max=changes.failover_lag_records_max,
            failover_lag_ms_max=changes.failover_lag_ms_max,
            is_dry_run=is_dry_run,
            timeout_ms=timeout_ms,
        )
        reply: site.LinkReply = await self._call("AlterLink", request, timeout_ms=timeout_ms + ASK_TIMEOUT_MS)
        return reply.record

    async def confirm_link(self, name: str, *, epoch: int, lease_ms: int = 0) -> site.LinkReply:
        """Confirm the stored epoch. Under a lease it returns when permits of earlier epochs have
        ended and the site's brokers have theirs.
        """
        request = site.ConfirmSiteLinkRequest(name=name, epoch=epoch)
        timeout_ms = STORE_TIMEOUT_MS + CONFIRM_LEASES * lease_ms
        reply: site.LinkReply = await self._call("ConfirmLink", request, timeout_ms=timeout_ms)
        return reply

    async def record_failover(self, link: str, *, epoch: int, document: str) -> None:
        """Store an account beside the link."""
        request = site.RecordFailoverRequest(link=link, epoch=epoch, json=document)
        await self._call("RecordFailover", request, timeout_ms=STORE_TIMEOUT_MS)

    async def failovers(self, link: str) -> list[str]:
        """Accounts kept at this site, oldest first."""
        reply: site.ListFailoversReply = await self._call("ListFailovers", site.ListFailoversRequest(link=link))
        return list(reply.json)

    async def changed_failovers(self, link: str, known_versions: Mapping[int, int]) -> site.ListFailoversReply:
        """The versions of all accounts that the site keeps, by epoch, and the accounts themselves
        that do not have the known version.
        """
        request = site.ListFailoversRequest(link=link, known_versions=known_versions)
        reply: site.ListFailoversReply = await self._call("ListFailovers", request)
        return reply

    async def request_failover(self, link: str, *, asked_by: str, timeout_ms: int) -> site.RequestFailoverReply:
        """Ask the standby's agents to fail over. SiteRefused names the closed gate."""
        request = site.RequestFailoverRequest(link=link, asked_by=asked_by)
        reply: site.RequestFailoverReply = await self._call("RequestFailover", request, timeout_ms=timeout_ms)
        return reply

    async def record_run(self, link: str, *, run: str, document: str) -> None:
        """Store the state of a failover run beside the link."""
        request = site.RecordRunRequest(link=link, run=run, json=document)
        await self._call("RecordRun", request, timeout_ms=STORE_TIMEOUT_MS)

    async def runs(self, link: str) -> list[str]:
        """The runs of the link's failovers that this site keeps, oldest first."""
        request = site.ListFailoversRequest(link=link, with_runs=True)
        reply: site.ListFailoversReply = await self._call("ListFailovers", request)
        return list(reply.runs)

    async def record_rehearsal(self, link: str, rehearsal: site.LinkRehearsal) -> None:
        """Keep the result of a rehearsal beside the link."""
        request = site.RecordRehearsalRequest(link=link, rehearsal=rehearsal)
        await self._call("RecordRehearsal", request, timeout_ms=STORE_TIMEOUT_MS)

    async def shared_access(self, link: str, *, epoch: int) -> site.SharedAccess:
        """The access rules that both sites have had, by an agent that knows the link at `epoch`."""
        request = site.GetSharedAccessRequest(link=link, epoch=epoch)
        reply: site.GetSharedAccessReply = await self._call("GetSharedAccess", request)
        return reply.shared

    async def _call(self, method: str, request: Any, *, timeout_ms: int | None = None) -> Any:
        """The first answer of an agent. Calls that change something have a `timeout_ms`; a call
        without one only reads, and several agents may be asked.
        """
        if not self._patience_ms:
            return await self._ask_agents(method, request, timeout_ms)
        retrying = jittered_backoff(retry_on=SiteInterrupted, budget_ms=self._patience_ms)
        return await retrying(self._ask_agents, method, request, timeout_ms)

    async def _ask_agents(self, method: str, request: Any, timeout_ms: int | None) -> Any:
        """The first answer.

        A reading call goes to one agent and, if that agent does not answer, to all others
        concurrently. A lost site with many brokers therefore costs two deadlines. Other calls go to
        one agent after the other.
        """
        # The sort is stable, so the agent that answered last comes first and the others keep their
        # order.
        left = sorted(self.agents, key=lambda address: address != self._first)
        deadline_ms = self._ask_timeout_ms if timeout_ms is None else timeout_ms
        problems: list[str] = []
        is_silent = is_interrupted = False
        while left:
            # all others at once only for questions: two agents must not both carry out a change
            asked, left = (left, []) if is_silent and timeout_ms is None else (left[:1], left[1:])
            calls = [
                asyncio.ensure_future(
                    self._ask(address, method, request, timeout_ms=deadline_ms, is_question=timeout_ms is None)
                )
                for address in asked
            ]
            try:
                for call in asyncio.as_completed(calls):
                    try:
                        return await call
                    except _NoAnswer as silence:
                        problems.append(str(silence))
                        is_silent = is_silent or silence.is_deadline
                        is_interrupted = is_interrupted or silence.is_interrupted
            finally:
                # the first answer counts; the others would only be late
                for one in calls:
                    one.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
        failure = SiteInterrupted if is_interrupted else SiteUnreachable
        raise failure(f"site {self.name} does not answer {method}: {'; '.join(problems)}")

    async def _awaited(self, stub: Any, method: str, request: Any, timeout_ms: int) -> Any:
        """The answer of an agent that is there: each time before the deadline ends, the agent must
        answer a small question. The answer about 10,000 partitions takes seconds on a busy machine.
        """
        probe_ms = timeout_ms * PROBE_SHARE
        limit_ms = timeout_ms + self._patience_ms
        answer = asyncio.ensure_future(getattr(stub, method)(request, timeout=limit_ms / 1000))
        try:
            while True:
                await asyncio.wait({answer}, timeout=(timeout_ms - probe_ms) / 1000)
                if not answer.done():
                    try:
                        await stub.ListLinks(site.ListLinksRequest(), timeout=probe_ms / 1000)
                    except grpc.aio.AioRpcError as error:
                        if error.code() in UNANSWERED and not answer.done():
                            raise
                if answer.done():
                    return await answer
        finally:
            answer.cancel()

    async def _ask(self, address: str, method: str, request: Any, *, timeout_ms: int, is_question: bool) -> Any:
        stub = self._channels.site_agent(address)
        try:
            if is_question and self._patience_ms:
                reply = await self._awaited(stub, method, request, timeout_ms)
            else:
                reply = await getattr(stub, method)(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            # "not enforced" has the code of a deadline, but the agent has stored the record
            is_answer = error.code() not in UNANSWERED or "not enforced" in (error.details() or "")
            if is_answer:
                raise SiteRefused(f"site {self.name}: {error.details()}", error.code()) from error
            is_deadline = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            raise _NoAnswer(
                f"{address} {problem_of(error)}", is_deadline=is_deadline, is_interrupted=is_interrupted(error)
            ) from error
        self._first = address
        return reply
