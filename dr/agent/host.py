"""The life of a site agent in a broker process: creates, starts and stops the agent's parts
together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from dr.agent.account_copies import AccountCopies
from dr.agent.account_settlements import AccountSettlements
from dr.agent.answers.answering import AgentParts
from dr.agent.answers.link_descriptions import SurveySecurity
from dr.agent.arbiter import Arbiter
from dr.agent.equality_watch import EqualityWatch
from dr.agent.failover_watch import FailoverWatch
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.link_following import LinkFollowing
from dr.agent.links_store import LinksStore
from dr.agent.metrics import SiteAgentMetrics
from dr.agent.own_brokers import OwnBrokers
from dr.agent.peer_watch import PeerWatch
from dr.agent.protection_judge import ProtectionJudge
from dr.agent.rehearsals import Rehearsals
from dr.agent.service import SERVICE_NAME, SiteAgentService
from dr.agent.shared_access import SharedAccessStore
from dr.agent.site_cache import SiteCache
from dr.agent.sync_restorer import SyncRestorer
from dr.proof.core.verification import LinkVerification
from dr.sites.channels import Channels
from runtime.doors import ProcessDoors
from runtime.grpc_server import GrpcServer
from runtime.zookeeper.client import ZooKeeper
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2_grpc import add_SiteAgentServicer_to_server


class SiteAgentHost:
    """A site agent in a broker process. It registers with the gRPC server when it is created, and
    answers between `start` and `stop`.
    """

    def __init__(
        self,
        *,
        site_name: str,
        zookeeper_connect: str,
        grpc_server: GrpcServer,
        registry: CollectorRegistry | None = None,
        zookeeper_session_timeout_ms: int = 6_000,
        arbiter_connect: str = "",
        arbiter_session_timeout_ms: int = 10_000,
        doors: ProcessDoors | None = None,
        survey_security: SurveySecurity | None = None,
    ) -> None:
        """`arbiter_connect` is empty if no link has a lease."""
        self._site = site_name
        self._doors = doors = doors or ProcessDoors()
        self._clock = doors.clock
        self._connect = zookeeper_connect
        self._session_timeout_ms = zookeeper_session_timeout_ms
        self._arbiter = Arbiter(
            arbiter_connect,
            session_timeout_ms=arbiter_session_timeout_ms,
            clock=doors.clock,
            open_zookeeper=doors.open_zookeeper,
        )
        self._service = SiteAgentService(site_name, self._clock, survey_security)
        self._zookeeper: ZooKeeper | None = None
        self._channels = Channels(doors.dial)
        self._parts: AgentParts | None = None
        add_SiteAgentServicer_to_server(self._service, grpc_server.server)  # type: ignore[no-untyped-call]
        grpc_server.add_service_name(SERVICE_NAME)
        if registry is not None:
            SiteAgentMetrics(
                registry,
                contested=self._contested,
                protection=self._protection,
                verification=self._verification,
                leases=lambda: {} if self._parts is None else self._parts.leases.leases(),
                waiting=lambda: {} if self._parts is None else self._parts.failovers.waiting(),
                failovers=lambda: {} if self._parts is None else self._parts.failovers.counts(),
                silences=lambda: {} if self._parts is None else self._parts.failovers.silences(),
                rehearsals=lambda: {} if self._parts is None else self._parts.rehearsals.states(),
            )

    def _contested(self) -> dict[str, bool]:
        parts = self._parts
        if parts is None:
            return {}
        return {link: link in parts.peers.contested for link in tuple(parts.cache.facts.links)}

    def _protection(self) -> Mapping[str, tuple[bool, float]]:
        return {} if self._parts is None else self._parts.judge.verdicts()

    def _verification(self) -> Mapping[str, tuple[LinkVerification, Mapping[tuple[str, int], int]]]:
        return {} if self._parts is None else self._parts.equality.states()

    async def start(self, broker_grpc_address: str) -> None:
        """Connect to the site's ZooKeeper, read it, and begin to watch the peers. The own broker
        answers at the address.
        """
        self._zookeeper = self._doors.open_zookeeper(self._connect, session_timeout_ms=self._session_timeout_ms)
        await self._zookeeper.start()
        cache = SiteCache(self._site, self._zookeeper)
        await cache.start()
        parts = self._parts = self._made(self._zookeeper, cache, broker_grpc_address)
        self._service.run_with(parts)
        self._arbiter.start()
        for task in (parts.leases, parts.peers, parts.judge, parts.equality, parts.failovers, parts.rehearsals):
            task.start()

    def _made(self, zookeeper: ZooKeeper, cache: SiteCache, address: str) -> AgentParts:
        """Create the parts without starting them; the own broker and this agent answer at
        `address`.
        """
        store = LinksStore(zookeeper)
        shared: dict[str, Any] = {"site": self._site, "cache": cache, "store": store, "clock": self._clock}
        asking: dict[str, Any] = {**shared, "channels": self._channels}
        brokers = OwnBrokers(cache, self._channels, self._clock)
        leases = LeaseKeeper(**asking, arbiter=self._arbiter, broker_address=address)
        on_level = self._on_level(cache, store, brokers)
        following = LinkFollowing(self._site, store, self._clock)
        peers = PeerWatch(**asking, broker_address=address, on_level=on_level, leases=leases, on_answers=following.look)
        return AgentParts(
            zookeeper=zookeeper,
            cache=cache,
            store=store,
            brokers=brokers,
            peers=peers,
            judge=ProtectionJudge(**asking, own_address=address),
            equality=EqualityWatch(**shared, own_address=address),
            arbiter=self._arbiter,
            leases=leases,
            failovers=FailoverWatch(**asking, arbiter=self._arbiter, peers=peers, own_address=address),
            rehearsals=Rehearsals(cache=cache, store=store, clock=self._clock),
            shared_access=SharedAccessStore(self._site, store, zookeeper, self._channels),
        )

    def _on_level(
        self, cache: SiteCache, store: LinksStore, brokers: OwnBrokers
    ) -> Callable[[LinkRecord], Awaitable[None]]:
        """Do the periodic work for a link that the peer has in the same epoch."""
        restorer = SyncRestorer(self._site, store, brokers, self._clock)
        copies = AccountCopies(self._site, store, self._channels, self._clock)
        settlements = AccountSettlements(
            self._site, cache=cache, store=store, brokers=brokers, channels=self._channels, clock=self._clock
        )

        async def look(record: LinkRecord) -> None:
            await restorer.look(record)
            await copies.look(record)
            await settlements.look(record)

        return look

    async def stop(self) -> None:
        """Stop watching and close every connection; safe after a failed start. Every part stops,
        also when others fail to stop; the last error is raised at the end.
        """
        self._service.run_with(None)
        parts, self._parts = self._parts, None
        zookeeper, self._zookeeper = self._zookeeper, None
        async with AsyncExitStack() as stops:
            # the stack stops what was added last first
            if zookeeper is not None:
                stops.push_async_callback(zookeeper.stop)
            stops.push_async_callback(self._channels.close)
            stops.push_async_callback(self._arbiter.stop)
            if parts is None:
                return
            watches = (parts.leases, parts.peers, parts.judge, parts.equality, parts.failovers, parts.rehearsals)
            for part in (parts.cache, *watches):
                stops.push_async_callback(part.stop)
