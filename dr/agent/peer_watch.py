"""Asks other sites each second for their links and their view. These sites are the peers, to which
links of this site lead, and the other standbys that these links name.

The watch stores a record of a higher epoch in its own ZooKeeper, confirms its own broker's role by
a record of the same epoch, and passes the view to its own broker for merged metadata. Every broker
process runs one peer watch for its own broker. A peer that does not answer changes nothing: a
confirmed role stays confirmed, an unconfirmed one stays unconfirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import grpc
from msgspec import Struct, field

from dr.agent.account_store import LinkUnknown
from dr.agent.core.answer_times import AnswerTimes
from dr.agent.core.following import SiteAnswer, ends_of, sites_to_ask
from dr.agent.core.site_view import whole_view, without_topics
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.links_store import LinksStore, awaits_truncation
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.channels import UNANSWERED, Channels, problem_of
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import Supervisor
from wire.control.broker_pb2 import ConfirmLinkRequest, PeerViewConfirmedRequest
from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.site_pb2 import GetSiteViewReply, GetSiteViewRequest, ListLinksRequest
from wire.rules.links import LinkEpoch, link_epoch, other_site, supersedes
from wire.znodes.documents import MalformedZnode

INTERVAL_MS = 1000
IMPATIENT_INTERVAL_MS = 100
"""Interval (ms) between requests while the own broker has not yet applied an answer of the peer."""
OWN_BROKER_TIMEOUT_S = 1.0
PROBE_SHARE = 1 / 3
"""The part of a deadline in which an agent that has not answered yet must answer a small question,
so that its next answer is awaited for longer.
"""


class Peer(Struct, kw_only=True):
    """The last known state of one other site."""

    view: SiteView = field(default_factory=SiteView)
    seen_at_ms: int = 0
    is_reachable: bool = False
    answering_agent: str = ""
    pushed_version: int = 0
    pushed_topics_version: int = 0
    answer_times: AnswerTimes = AnswerTimes()


class PeerWatch:
    """The task that keeps the own broker and the own ZooKeeper up to date with the peers."""

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
        on_answers: Callable[[Mapping[str, LinkRecord], Mapping[str, SiteAnswer]], Awaitable[bool]],
    ) -> None:
        self._site = site
        self._on_answers = on_answers
        """Called after each round with the own links and the answers; returns True after a change
        of the own links.
        """
        self._cache = cache
        self._leases = leases
        self._store = store
        self._clock = clock
        self._on_level = on_level
        """Called with each link that the peer has in the same epoch, whenever it answers."""
        self._channels = channels
        self._broker = channels.broker_control(broker_address)
        self._peers: dict[str, Peer] = {}
        self._confirmed: dict[str, LinkEpoch] = {}
        self.contested: dict[str, str] = {}
        """The links for which the peer's record has the same epoch but another active site, and
        that site: clients may write to both.
        """
        self._has_unfinished = False
        self._log = get_logger("dr.peer_watch")
        self._state_change = state_change_logger()
        self._wake = asyncio.Event()
        self._loops = Supervisor()

    def peer(self, site: str) -> Peer:
        """The last known state of a peer; a peer counts as unreachable until its first answer."""
        return self._peers.setdefault(site, Peer())

    def is_confirmed(self, record: LinkRecord) -> bool:
        """True when this epoch was confirmed to the own broker."""
        if record.lease_ms and record.active_site == self._site:
            # Under a lease the arbiter confirms the role, not the peer, and a permit proves it.
            return self._leases.has_permit(record)
        return self._confirmed.get(record.name) == link_epoch(record)

    def is_unknown_to_peer(self, record: LinkRecord) -> bool:
        """True when the peer answers and has no link of this name."""
        peer = self.peer(other_site(record, self._site))
        return peer.is_reachable and all(theirs.name != record.name for theirs in peer.view.links)

    def note_confirmed(self, record: LinkRecord) -> None:
        """Note that the operator has confirmed the record's epoch at every broker."""
        self._confirmed[record.name] = link_epoch(record)

    def start(self) -> None:
        """Begin. A change of the own links causes a tick at once."""
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
                # The own ZooKeeper does not answer or holds a malformed znode: the next tick tries
                # again.
                self._log.warning("peers could not be compared", error=str(error))
            pause_ms = IMPATIENT_INTERVAL_MS if self._has_unfinished else INTERVAL_MS
            try:
                # A change of the own links ends the pause, because an operator waits for its
                # effect.
                async with asyncio.timeout(pause_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def tick(self) -> None:
        """Ask every peer once and act on the answers."""
        self.contested = {name: site for name, site in self.contested.items() if name in self._cache.facts.links}
        links = self._cache.facts.links
        peers = {other_site(link, self._site) for link in links.values()}
        asked = peers | sites_to_ask(links.values(), self._site)
        for gone in self._peers.keys() - asked:
            del self._peers[gone]
        self._confirmed = {name: known for name, known in self._confirmed.items() if name in self._cache.facts.links}
        ended = await asyncio.gather(
            *(self._follow_peer(name, links.values(), is_peer=name in peers) for name in asked), return_exceptions=True
        )
        answers = {
            name: SiteAnswer(is_answering=peer.is_reachable, links={record.name: record for record in peer.view.links})
            for name, peer in self._peers.items()
        }
        self._has_unfinished |= await self._on_answers(links, answers)
        for outcome in ended:
            if outcome is not None:
                raise outcome  # only after every peer was asked

    async def _follow_peer(self, name: str, links: Collection[LinkRecord], *, is_peer: bool) -> None:
        peer = self.peer(name)
        if not await self._ask(name, peer, links):
            return
        theirs = {record.name: record for record in peer.view.links}
        try:
            for own in links:
                # A record without this site as an end belongs to a link that goes on between other
                # sites.
                if own.name in theirs and {self._site, name} == ends_of(theirs[own.name]):
                    await self._compare_readable(own, theirs[own.name])
        finally:  # an error in the comparison of links must not hide the peer's brokers
            if is_peer:
                await self._push_view(peer)

    async def _compare_readable(self, own: LinkRecord, theirs: LinkRecord) -> None:
        try:
            await self._compare(own, theirs)
        except MalformedZnode as error:
            # A malformed link must not keep the other links from being compared.
            self._log.warning("link cannot be compared with the peer's", link=own.name, problem=str(error))

    async def _ask(self, name: str, peer: Peer, links: Iterable[LinkRecord]) -> bool:
        naming = (link for link in links if name in link.sites)
        addresses = dict.fromkeys(address for link in naming for address in link.sites[name].agents)
        request = GetSiteViewRequest(
            asking_site=self._site,
            known_version=peer.view.version,
            known_topics_version=peer.view.topics_version,
        )
        # The agent that answered last is asked first: a stopped one would cost its timeout each
        # second.
        for address in sorted(addresses, key=lambda address: address != peer.answering_agent):
            try:
                reply = await self._view(peer, address, request)
            except grpc.aio.AioRpcError as error:
                if error.code() not in UNANSWERED:
                    self._log.warning("peer's agent refuses", peer=name, agent=address, error=problem_of(error))
                continue
            # After a change of the network the address may belong to another site.
            if not reply.is_unchanged and reply.view.site != name:
                self._log.error("agent belongs to another site", agent=address, expected=name, found=reply.view.site)
                continue
            self._note_answer(name, peer, address)
            if not reply.is_unchanged:
                is_brief = reply.view.has_known_topics
                peer.view = whole_view(reply.view, peer.view.topics) if is_brief else reply.view
            return True
        self._note_silence(name, peer)
        return False

    async def _view(self, peer: Peer, address: str, request: GetSiteViewRequest) -> GetSiteViewReply:
        """The agent's answer; AioRpcError without one. The time that it takes sets the deadline of
        the next question.
        """
        stub, began_ms = self._channels.site_agent(address), self._clock.monotonic_ms()
        deadline_ms = peer.answer_times.deadline_ms
        probe_ms = deadline_ms * PROBE_SHARE
        is_there = False
        answer = asyncio.ensure_future(stub.GetSiteView(request, timeout=deadline_ms / 1000))
        try:
            await asyncio.wait({answer}, timeout=(deadline_ms - probe_ms) / 1000)
            if not answer.done():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.ListLinks(ListLinksRequest(), timeout=probe_ms / 1000)
                    is_there = True
            reply: GetSiteViewReply = await answer
        except grpc.aio.AioRpcError as error:
            if is_there and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                peer.answer_times = peer.answer_times.late()
            raise
        finally:
            answer.cancel()
        peer.answer_times = peer.answer_times.answered(self._clock.monotonic_ms() - began_ms)
        return reply

    def _note_answer(self, name: str, peer: Peer, address: str) -> None:
        if not peer.is_reachable:
            self._log.info("peer answers", peer=name, agent=address)
        peer.is_reachable, peer.seen_at_ms, peer.answering_agent = True, self._clock.now_ms(), address

    def _note_silence(self, name: str, peer: Peer) -> None:
        if peer.is_reachable:
            self._log.warning("peer does not answer", peer=name, last_seen_ms=peer.seen_at_ms)
        peer.is_reachable = False

    async def _compare(self, own: LinkRecord, theirs: LinkRecord) -> None:
        # The records alone do not show which site is right, so both sites keep theirs and report
        # the conflict.
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
        # An equal epoch is the peer's agreement. A lower epoch means that the peer has not read the
        # new record yet.
        elif theirs.epoch == own.epoch:
            if not self._is_settled(own) and await self._may_confirm(own):
                await self._confirm(own)
            await self._on_level(own)

    def _is_settled(self, own: LinkRecord) -> bool:
        """True if the peer's agreement adds nothing. Under a lease a permit may be valid although
        the arbiter has lost its data: the epoch is opened again only with the peer's agreement.
        """
        is_under_lease = own.lease_ms and own.active_site == self._site
        return self.is_confirmed(own) and (not is_under_lease or self._leases.is_requested(own))

    async def _may_confirm(self, own: LinkRecord) -> bool:
        return own.active_site != self._site or not await awaits_truncation(own, self._store)

    async def _adopt(self, record: LinkRecord) -> None:
        try:
            stored = await self._store.adopt(record)
        except LinkUnknown:
            return  # The link was just deleted here; the cache will show it.
        # The broker has not applied the record yet, so the next tick comes soon.
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
            self._leases.request_open(record)  # under a lease only the arbiter's permit opens writes
            return
        try:
            reply = await self._broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch), timeout=OWN_BROKER_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            self._log.warning("own broker does not accept a confirmation", link=record.name, error=problem_of(error))
            self._has_unfinished = True
            return
        # The broker's image of the link lags behind the record: the next tick tries again.
        if not reply.is_confirmed:
            self._has_unfinished = True
            return
        self.note_confirmed(record)
        self._state_change.info(
            "link confirmed with peer", link=record.name, epoch=record.epoch, active=record.active_site
        )

    async def _push_view(self, peer: Peer) -> None:
        try:
            if peer.pushed_version == peer.view.version:
                # An unchanged view is not sent again. The broker only needs to learn that the peer
                # still answers.
                await self._broker.PeerViewConfirmed(
                    PeerViewConfirmedRequest(site=peer.view.site), timeout=OWN_BROKER_TIMEOUT_S
                )
            else:
                await self._update_view(peer)
        except grpc.aio.AioRpcError as error:
            self._log.warning(
                "own broker does not accept the peer's view", peer=peer.view.site, error=problem_of(error)
            )
            self._has_unfinished = True
            return
        peer.pushed_version = peer.view.version
        peer.pushed_topics_version = peer.view.topics_version

    async def _update_view(self, peer: Peer) -> None:
        if peer.pushed_topics_version == peer.view.topics_version:
            reply = await self._broker.UpdatePeerView(without_topics(peer.view), timeout=OWN_BROKER_TIMEOUT_S)
            if not reply.lacks_topics:
                return
        await self._broker.UpdatePeerView(peer.view, timeout=OWN_BROKER_TIMEOUT_S)
