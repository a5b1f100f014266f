"""The processes of two sites: brokers with controllers and agents, one mirror daemon for each
direction, and how all of them are reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient
from mirror.main import MirrorDaemon
from mirror.settings.config import MirrorConfig
from runtime.configuration import load_settings
from tests.sim.doors import process_doors
from tests.sim.links.ledger import LinkLedger
from tests.sim.links.plan import ARBITERS, CLOCK_SPEED_MAX, LINK, MIRROR_HOSTS, SITES, ZOOKEEPERS, LinkPlan
from tests.sim.links.produce_tap import ProduceTap
from tests.sim.node import Node
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World

ARBITER_CONNECT = f"{ARBITERS[0]}:2181"
RESTART_S = 0.5
"""After this a mirror that could not go on is started again, as a service is."""


def drifting_clock(world: World) -> VirtualClock:
    """The clock of one process: its speed and its time of day differ from the others'."""
    chance = world.chance
    return VirtualClock(
        world.loop,
        speed=1 + chance.uniform(-CLOCK_SPEED_MAX, CLOCK_SPEED_MAX),
        offset_ms=chance.randint(-500, 500),
    )


class MirrorHost:
    """The host of the mirror that writes into one site; outlives its processes."""

    def __init__(self, world: World, site: str, agents: tuple[str, ...]) -> None:
        self.world = world
        self.site = site
        self.host = MIRROR_HOSTS[site]
        self._agents = agents
        self._clock = drifting_clock(world)
        self._starts = 0
        self.process: Process | None = None
        self.daemon: MirrorDaemon | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process is alive, paused or not."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """A new process."""
        if self.is_running:
            return
        self._starts += 1
        process = self.process = Process(self.world.loop, f"{self.host}.{self._starts}", self.host)
        process.on_death.append(lambda: self.world.network.process_ended(process))
        process.spawn(self._run(process), name=process.name)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} is killed")
            self.process.kill()

    async def _run(self, process: Process) -> None:
        config = load_settings(
            MirrorConfig,
            {
                "link.name": LINK,
                "site.agents": ",".join(self._agents),
                "num.streams": "1",
                "num.producers": "1",
                "request.timeout.ms": "2000",
                "link.refresh.interval.ms": "300",
                "fetch.wait.max.ms": "300",
            },
        )
        self.daemon = MirrorDaemon(
            config,
            doors=process_doors(self.world, process, self._clock, self.world.chance),
            registry=CollectorRegistry(),
            healths={},
        )
        # Without a port the daemon's name has the number of this process of the machine.
        self.daemon.grpc_port = self._starts
        await self.daemon.start()
        error = await self.daemon.failed
        self.world.tell(f"the mirror cannot go on: {error}")
        self.world.loop.call_later(RESTART_S, self.start, context=self.world.network.context)
        process.kill()


class TwoSites:
    """The processes of two sites and their addresses."""

    def __init__(self, world: World, ledger: LinkLedger, plan: LinkPlan) -> None:
        self.world = world
        self.plan = plan
        self.nodes: dict[int, Node] = {}
        for site in SITES:
            for node_id in plan.node_ids(site):
                self.nodes[node_id] = self._node(ledger, site, node_id)
        self.mirrors = {site: MirrorHost(world, site, self.agents(site)) for site in SITES}

    def _node(self, ledger: LinkLedger, site: str, node_id: int) -> Node:
        node = Node(
            self.world,
            ledger,
            node_id,
            properties=self._properties(site),
            arbiter_connect=ARBITER_CONNECT,
            clock=drifting_clock(self.world),
        )
        node.make_tap = lambda: ProduceTap(partial(ledger.answers_produce, node_id))
        return node

    def _properties(self, site: str) -> dict[str, Any]:
        copies = str(self.plan.brokers)
        return {
            "zookeeper.connect": f"{ZOOKEEPERS[site][0]}:2181",
            "antipode.site.name": site,
            "antipode.site.number": str(SITES.index(site)),
            "min.insync.replicas": "1",
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "antipode.arbiter.connect": ARBITER_CONNECT,
            "antipode.arbiter.session.timeout.ms": "1500",
            "antipode.truncated.records.max.bytes": str(1 << 30),
        }

    def of_site(self, site: str) -> Iterator[Node]:
        """The site's nodes."""
        return (self.nodes[node_id] for node_id in self.plan.node_ids(site))

    def agents(self, site: str) -> tuple[str, ...]:
        """The addresses of the site's agents."""
        return tuple(node.rpc_address for node in self.of_site(site))

    def bootstrap(self, site: str) -> str:
        """The addresses of the site's brokers for clients."""
        return ",".join(node.kafka_address for node in self.of_site(site))

    def client(self, site: str, channels: Channels) -> SiteClient:
        """A client of the site's agents for the process that runs."""
        return SiteClient(site, list(self.agents(site)), channels)

    def start(self) -> None:
        """All processes."""
        for node in self.nodes.values():
            node.start()
        for mirror in self.mirrors.values():
            mirror.start()

    def hosts(self, site: str) -> tuple[str, ...]:
        """All hosts of a site: of its nodes, its ZooKeeper and its mirror."""
        return (*(node.host for node in self.of_site(site)), *ZOOKEEPERS[site], MIRROR_HOSTS[site])
