"""Watches the link's record at the target site's agents, and derives this mirror's role from it.

The target's record of the link counts: the mirror writes there, and a promotion raises the epoch
there first. Any agent of the site may answer; when none does, the last known record stays in force,
since the target's brokers refuse an outdated epoch anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from msgspec import Struct

from mirror.link.core.link_roles import LinkRole
from runtime.addresses import HostPort
from runtime.grpc_server import Dial, is_control_plane_protected
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from wire.control import site_pb2, site_pb2_grpc
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, SiteView
from wire.rules.links import other_site

CALL_TIMEOUT_S = 2.0
SHARED_ACCESS_TIMEOUT_S = 15.0
"""The target's agent may have to ask those of the source."""
LINK_LISTENER = "LINK"
PAUSE_WHEN_IN_DOUBT_S = 0.02
"""Pause (s) before the link is read on request, so that the requests of many partitions cause only
one read.
"""

_log = get_logger("mirror.link")


class LinkMissing(OperationalFailure):
    """The target site does not have the link."""


class AgentsUnreachable(Exception):
    """No site agent of the target answers."""


class NotOffered(AgentsUnreachable):
    """The agents run an earlier release, which does not have the call."""


class LinkView(Struct, frozen=True):
    """The link as last read: the record, the site of the answering agents, and the resulting role
    of the mirror.
    """

    name: str
    epoch: int
    role: LinkRole
    reason: str
    record: LinkRecord
    site: str

    @property
    def source_site(self) -> str:
        """The site that is mirrored from."""
        return other_site(self.record, self.site)


def stand(record: LinkRecord, site: str) -> LinkView:
    """The role that the record gives to a mirror that writes into `site`."""
    if record.active_site == site:
        role, reason = LinkRole.TURNED, f"site {site} is active at link epoch {record.epoch}"
    elif record.phase == LinkPhase.FENCED:
        role = LinkRole.DRAINING
        reason = f"site {record.active_site} is fenced at link epoch {record.epoch}: draining"
    else:
        role, reason = LinkRole.MIRRORING, f"site {record.active_site} is active at link epoch {record.epoch}"
    return LinkView(name=record.name, epoch=record.epoch, role=role, reason=reason, record=record, site=site)


class LinkReader:
    """Asks the agents one after the other, the one that answered last first."""

    def __init__(self, link: str, agents: Sequence[HostPort], dial: Dial) -> None:
        self._link = link
        self._dial = dial
        self._agents = list(agents)
        self._channels: dict[HostPort, grpc.aio.Channel] = {}

    async def read(self) -> LinkView:
        """The link now. LinkMissing when the site has no such link, AgentsUnreachable when no agent
        answers.
        """
        reply: site_pb2.ListLinksReply = await self._ask("ListLinks", site_pb2.ListLinksRequest())
        for status in reply.links:
            if status.record.name == self._link:
                return stand(status.record, reply.site)
        names = ", ".join(sorted(status.record.name for status in reply.links)) or "none"
        hint = (
            " (a site shows a mirror only the link that its certificate names)" if is_control_plane_protected() else ""
        )
        raise LinkMissing(f"site {reply.site} has no link {self._link!r}; its links: {names}{hint}")

    async def target_bootstrap_servers(self) -> tuple[HostPort, ...]:
        """The LINK listeners of the target site's brokers (their first listener when they have no
        LINK).
        """
        view = await self._view()
        addresses: list[HostPort] = []
        for broker in view.brokers:
            named = [endpoint for endpoint in broker.endpoints if endpoint.listener == LINK_LISTENER]
            chosen = (named or list(broker.endpoints))[:1]
            addresses += [HostPort(endpoint.host, endpoint.port) for endpoint in chosen]
        if not addresses:
            raise AgentsUnreachable("the target site's view names no broker")
        return tuple(addresses)

    async def shared_access(self, *, epoch: int) -> site_pb2.GetSharedAccessReply | None:
        """The access rules that both sites of the link have had, from an agent that knows the link
        at `epoch`; None if the agents run a release that stores none. AgentsUnreachable.
        """
        try:
            reply: site_pb2.GetSharedAccessReply = await self._ask(
                "GetSharedAccess",
                site_pb2.GetSharedAccessRequest(link=self._link, epoch=epoch),
                timeout_s=SHARED_ACCESS_TIMEOUT_S,
            )
        except NotOffered:
            return None
        return reply

    async def record_shared_access(self, shared: site_pb2.SharedAccess, *, version: int) -> int:
        """Have the agents store these rules in place of those of `version`; returns their version.
        AgentsUnreachable.
        """
        request = site_pb2.RecordSharedAccessRequest(link=self._link, shared=shared, version=version)
        reply: site_pb2.RecordSharedAccessReply = await self._ask("RecordSharedAccess", request)
        return reply.version

    async def close(self) -> None:
        """Drop the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _view(self) -> SiteView:
        reply: site_pb2.GetSiteViewReply = await self._ask("GetSiteView", site_pb2.GetSiteViewRequest())
        return reply.view

    async def _ask(self, method: str, request: object, *, timeout_s: float = CALL_TIMEOUT_S) -> Any:
        problems: list[str] = []
        for agent in list(self._agents):
            if agent not in self._channels:
                self._channels[agent] = self._dial(str(agent))
            stub = site_pb2_grpc.SiteAgentStub(self._channels[agent])  # type: ignore[no-untyped-call]
            try:
                reply = await getattr(stub, method)(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise NotOffered(f"agent {agent} of an earlier release has no {method}") from None
                problems.append(f"{agent}: {error.code().name} {error.details()}")
                continue
            self._agents.remove(agent)
            self._agents.insert(0, agent)
            return reply
        raise AgentsUnreachable(f"no site agent answers {method}: {'; '.join(problems)}")


class LinkWatch:
    """Reads the link each interval, and at once when it is suspected to be outdated; passes on each
    result.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[LinkView]],
        *,
        interval_ms: int,
        on_link_view: Callable[[LinkView], None],
        on_missing: Callable[[str], None],
    ) -> None:
        self._read = read
        self._interval_s = interval_ms / 1000
        self._on_link_view = on_link_view
        self._on_missing = on_missing
        self._doubt = asyncio.Event()

    def doubt(self) -> None:
        """Read the link at once."""
        self._doubt.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        was_reachable = True
        while True:
            await self._pause()
            try:
                self._on_link_view(await self._read())
                was_reachable = True
            except LinkMissing as error:
                self._on_missing(str(error))
            except AgentsUnreachable as error:
                if was_reachable:
                    _log.warning("cannot read the link; using its last known state", reason=str(error))
                was_reachable = False

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._interval_s):
                await self._doubt.wait()
        except TimeoutError:
            return
        self._doubt.clear()
        await asyncio.sleep(PAUSE_WHEN_IN_DOUBT_S)
