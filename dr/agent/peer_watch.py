"""Asking the other sites, each second: which links stand there, and how do they look.

A higher epoch found there goes into the own ZooKeeper; an equal one confirms the own broker's role;
the view goes to the own broker for merged metadata. Every broker process runs one for its own
broker. A peer that does not answer changes nothing: a role once confirmed stays, one that is not
stays shut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import grpc

from dr.agent.core.site_view import links_between
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.links_store import LinksStore, LinkUnknown
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.channels import UNANSWERED, Channels, problem_of
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import Supervisor
from wire.control.broker_pb2 import ConfirmLinkRequest, PeerViewConfirmedRequest
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.site_pb2 import GetSiteViewRequest
from wire.rules.links import other_site, supersedes, truncates_logs
from wire.znodes.documents import MalformedZnode

INTERVAL_MS = 1000
IMPATIENT_INTERVAL_MS = 100
"""Interval (ms) between requests while the own broker has not yet applied an answer of the peer."""
ASK_TIMEOUT_S = 1.0


@dataclass(slots=True, kw_only=True)
class Peer:
    """The knowledge about one other site."""

    view: SiteView = field(default_factory=SiteView)
    seen_at_ms: int = 0
    is_reachable: bool = False
    answering_agent: str = ""
    pushed_version: int = 0


class PeerWatch:
    """The task that keeps the own broker and the own ZooKeeper level with the peers."""

    def __init__(
        self,
        *,
        site: str,
        cache: SiteCache,
        store: LinksStore,
        channels: Channels,
        broker_address: str,
        clock: Clock,
        on_level: Callable[[LinkRecord], Awaitable[None]],
        leases: LeaseKeeper,
    ) -> None:
        self._site = site
        self._cache = cache
        self._leases = leases
        self._store = store
        self._clock = clock
        self._on_level = on_level
        """Called with each link that the peer has in the same epoch, whenever it answers."""
        self._channels = channels
        self._broker = channels.broker_control(broker_address)
        self._peers: dict[str, Peer] = {}
        self._confirmed: dict[str, int] = {}
        self.contested: dict[str, str] = {}
        """Links of which the peer's record has the same epoch and another active site, with that
        site: both may be written to.
        """
        self._has_unfinished = False
        self._log = get_logger("dr.peer_watch")
        self._state_change = state_change_logger()
        self._wake = asyncio.Event()
        self._loops = Supervisor()

    def peer(self, site: str) -> Peer:
        """The knowledge about a peer; a peer counts as unreachable until its first answer."""
        return self._peers.setdefault(site, Peer())

    def is_confirmed(self, record: LinkRecord) -> bool:
        """True when this epoch was confirmed to the own broker."""
        if record.lease_ms and record.active_site == self._site:
            # under a lease the arbiter confirms, not the peer: a permit is the proof
            return self._leases.has_permit(record)
        return self._confirmed.get(record.name) == record.epoch

    def note_confirmed(self, link: str, epoch: int) -> None:
        """The operator confirmed the epoch at every broker."""
        self._confirmed[link] = epoch

    def start(self) -> None:
        """Begin; a change of the own links is acted on at once."""
        self._cache.on_change(self._wake.set)
        self._loops.start("peer watch", self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._loops.stop()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._has_unfinished = False
            try:
                await self.tick()
            except (*DISCONNECTED, ValueError) as error:
                # The own ZooKeeper is cut off or holds what cannot be read: the next tick tries
                # again.
                self._log.warning("peers could not be compared", error=str(error))
            pause_ms = IMPATIENT_INTERVAL_MS if self._has_unfinished else INTERVAL_MS
            try:
                # a change of the own links wakes it: an operator waits for what it leads to
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def tick(self) -> None:
        """Ask every peer once and act on the answers."""
        self.contested = {name: site for name, site in self.contested.items() if name in self._cache.facts.links}
        links = self._cache.facts.links.values()
        peers = {other_site(link, self._site) for link in links}
        for gone in self._peers.keys() - peers:
            del self._peers[gone]
        self._confirmed = {name: epoch for name, epoch in self._confirmed.items() if name in self._cache.facts.links}
        ended = await asyncio.gather(
            *(self._follow_peer(name, links_between(links, self._site, name)) for name in peers), return_exceptions=True
        )
        for outcome in ended:
            if outcome is not None:
                raise outcome  # when every peer has had its turn

    async def _follow_peer(self, name: str, links: list[LinkRecord]) -> None:
        peer = self.peer(name)
        if not await self._ask(name, peer, links):
            return
        theirs = {record.name: record for record in peer.view.links}
        try:
            for own in links:
                if own.name in theirs:
                    await self._compare_readable(own, theirs[own.name])
        finally:  # an error in the comparison of links must not hide the peer's brokers
            await self._push_view(peer)

    async def _compare_readable(self, own: LinkRecord, theirs: LinkRecord) -> None:
        try:
            await self._compare(own, theirs)
        except MalformedZnode as error:
            # the other links have their turn
            self._log.warning("link cannot be compared with the peer's", link=own.name, problem=str(error))

    async def _ask(self, name: str, peer: Peer, links: Iterable[LinkRecord]) -> bool:
        addresses = dict.fromkeys(address for link in links for address in link.sites[name].agents)
        request = GetSiteViewRequest(asking_site=self._site, known_version=peer.view.version)
        # the agent that answered last comes first: a dead one costs its timeout each second
        for address in sorted(addresses, key=lambda address: address != peer.answering_agent):
            try:
                stub = self._channels.site_agent(address)
                reply = await stub.GetSiteView(request, timeout=ASK_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() not in UNANSWERED:
                    self._log.warning("peer's agent refuses", peer=name, agent=address, error=problem_of(error))
                continue
            # an address may lead to another site since a change of the network
            if not reply.is_unchanged and reply.view.site != name:
                self._log.error("agent belongs to another site", agent=address, expected=name, found=reply.view.site)
                continue
            self._note_answer(name, peer, address)
            if not reply.is_unchanged:
                peer.view = reply.view
            return True
        self._note_silence(name, peer)
        return False

    def _note_answer(self, name: str, peer: Peer, address: str) -> None:
        if not peer.is_reachable:
            self._log.info("peer answers", peer=name, agent=address)
        peer.is_reachable, peer.seen_at_ms, peer.answering_agent = True, self._clock.now_ms(), address

    def _note_silence(self, name: str, peer: Peer) -> None:
        if peer.is_reachable:
            self._log.warning("peer does not answer", peer=name, last_seen_ms=peer.seen_at_ms)
        peer.is_reachable = False

    async def _compare(self, own: LinkRecord, theirs: LinkRecord) -> None:
        # nothing here can decide which is right: both keep their records and report it
        if not supersedes(theirs, own) and theirs.epoch == own.epoch and theirs.active_site != own.active_site:
            self.contested[own.name] = theirs.active_site
            self._state_change.error(
                "both sites claim the link",
                link=own.name,
                epoch=own.epoch,
                own_active=own.active_site,
                their_active=theirs.active_site,
            )
            return
        if self.contested.pop(own.name, None) is not None:
            self._state_change.info("the sites agree about the link again", link=own.name, epoch=theirs.epoch)
        if supersedes(theirs, own):
            await self._adopt(theirs)
        # equal epochs are the peer's agreement; a lower one there is still on its way
        elif theirs.epoch == own.epoch:
            if not self.is_confirmed(own) and await self._may_confirm(own):
                await self._confirm(own)
            await self._on_level(own)

    async def _may_confirm(self, own: LinkRecord) -> bool:
        """Return True unless a failover still truncates the own logs: clients write there after it
        has kept the account.
        """
        if own.active_site != self._site or not truncates_logs(own):
            return True
        return own.epoch in await self._store.failovers(own.name)

    async def _adopt(self, record: LinkRecord) -> None:
        try:
            stored = await self._store.adopt(record)
        except LinkUnknown:
            return  # deleted here a moment ago; the cache will say so
        # the broker has not applied it yet: the next look comes soon
        self._has_unfinished = True
        self._state_change.info(
            "link adopted from peer",
            link=stored.name,
            epoch=stored.epoch,
            active=stored.active_site,
            phase=stored.phase,
        )

    async def _confirm(self, record: LinkRecord) -> None:
        if record.lease_ms and record.active_site == self._site:
            self._leases.request_open(record)  # permits come from the arbiter
            return
        try:
            reply = await self._broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch), timeout=ASK_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            self._log.warning("own broker does not take a confirmation", link=record.name, error=problem_of(error))
            self._has_unfinished = True
            return
        # the broker's image is behind the record
        if not reply.is_confirmed:
            self._has_unfinished = True
            return
        self._confirmed[record.name] = record.epoch
        self._state_change.info(
            "link confirmed with peer", link=record.name, epoch=record.epoch, active=record.active_site
        )

    async def _push_view(self, peer: Peer) -> None:
        try:
            if peer.pushed_version == peer.view.version:
                # an unchanged view is only confirmed: the broker must know that the peer still
                # answers
                await self._broker.PeerViewConfirmed(
                    PeerViewConfirmedRequest(site=peer.view.site), timeout=ASK_TIMEOUT_S
                )
            else:
                await self._broker.UpdatePeerView(peer.view, timeout=ASK_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self._log.warning("own broker does not take the peer's view", peer=peer.view.site, error=problem_of(error))
            self._has_unfinished = True
            return
        peer.pushed_version = peer.view.version
