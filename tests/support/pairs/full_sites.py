"""Whole sites for failover tests: ZooKeeper (a chroot each), one process a site with broker,
controller and site agent, a mirror.

`python -m tests.support.pairs.full_sites key=value...` runs a site's process until SIGTERM;
`LinkedSites` starts two of them, the link and the mirror, and talks to them. Everything is real;
only `antipode up`'s wrapping is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.main import Broker
from broker.settings.loading import load_broker_settings
from broker.site.membership import Membership
from broker.site.security_survey import security_survey
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from dr.agent.host import SiteAgentHost
from dr.links.administration import LinkSpec, SiteAddresses, create_link
from dr.sites.channels import Channels
from dr.sites.site_client import COMMAND_PATIENCE_MS, SiteClient, SiteRefused, SiteUnreachable
from runtime.children import Child
from runtime.clock import SystemClock
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from runtime.logs import configure
from runtime.metrics import new_registry
from runtime.process import run_daemon
from runtime.retries import jittered_backoff
from runtime.zookeeper.client import ZooKeeper
from tests.support.internal_topics import internal_topic_copies
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Toxiproxy
from wire.client.raw_client import KafkaClient, NewTopic
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import DescribeLinkReply
from wire.rules.links import SYNC_TIMEOUT_MS, SyncPolicy

REPOSITORY = Path(__file__).parents[3]
LINK = "a-b"
ANSWERED_WITHIN_MS = 60_000
CLUSTER_ID = "c2l0ZXMtb2YtYS10ZXN0LQ"


class FullSite:
    """One site's only process; it keeps its ports when it is started again."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        *,
        name: str,
        number: int,
        connect: str,
        toxiproxy: Toxiproxy | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.client_port, self.link_port, self.grpc_port = free_ports(3)
        self.proxies = {
            kind: toxiproxy.create(f"{name}-{kind}", f"{LOOPBACK}:{port}").address
            for kind, port in (("link", self.link_port), ("grpc", self.grpc_port))
            if toxiproxy is not None
        }
        self.properties = {
            "node.id": str(number * 1000 + 1),
            "listeners": f"CLIENT://{LOOPBACK}:{self.client_port},LINK://{LOOPBACK}:{self.link_port}",
            "advertised.listeners": f"CLIENT://{LOOPBACK}:{self.client_port},LINK://{self.link}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,LINK:PLAINTEXT",
            "log.dirs": str(directory / name / "data"),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",  # a busy machine may stand still for seconds
            "antipode.site.name": name,
            "antipode.site.number": str(number),
            "antipode.cluster.id": CLUSTER_ID,
            "antipode.grpc.listener": f"{LOOPBACK}:{self.grpc_port}",
            "offsets.topic.num.partitions": "2",
            **internal_topic_copies(1),
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "2",
            **(properties or {}),
        }
        arguments = [f"{key}={value}" for key, value in self.properties.items()]
        child = Child(
            name=f"site-{name}",
            command=[sys.executable, "-m", "tests.support.pairs.full_sites", *arguments],
            directory=directory / name,
            log=directory / f"site-{name}.log",
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        self.process = processes.run(child)
        self._starts = 1

    @property
    def bootstrap(self) -> str:
        """The address that clients connect to."""
        return f"{LOOPBACK}:{self.client_port}"

    @property
    def link(self) -> str:
        """The address for the other site's mirror: that of the proxy if there is one."""
        return self.proxies.get("link", f"{LOOPBACK}:{self.link_port}")

    @property
    def agent(self) -> str:
        """The agent's gRPC address."""
        return f"{LOOPBACK}:{self.grpc_port}"

    @property
    def peer_agent(self) -> str:
        """The agent as the other site reaches it."""
        return self.proxies.get("grpc", self.agent)

    def wait_ready(self) -> None:
        """Wait until the site accepts clients."""
        self.process.wait_ready(lambda: self.process.log_text().count('{"ready"') >= self._starts)

    def restart(self) -> None:
        """Start the ended process again."""
        self._starts += 1
        self.process.start()
        self.wait_ready()


class LinkedSites:
    """Sites a (active) and b, and after `link` the link between them with its mirror."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        zookeeper_connect: str,
        toxiproxy: Toxiproxy | None = None,
        *,
        properties: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._processes = processes
        self._directory = directory
        self._toxiproxy = toxiproxy
        self.a, self.b = (
            FullSite(
                processes,
                directory,
                name=name,
                number=number,
                connect=f"{zookeeper_connect}/{name}",
                toxiproxy=toxiproxy,
                properties=(properties or {}).get(name),
            )
            for number, name in enumerate("ab")
        )
        self.channels = Channels()
        self.mirror: RunningProcess | None = None
        self.mirrors: dict[str, str] = {}
        """Where the mirror into each site serves MirrorAdmin."""
        for site in (self.a, self.b):
            site.wait_ready()

    @property
    def agents(self) -> dict[str, list[str]]:
        """Agent addresses by site."""
        return {site.name: [site.agent] for site in (self.a, self.b)}

    def client(self, name: str) -> SiteClient:
        """A client of a site's agent, with the patience of commands."""
        return SiteClient(name, self.agents[name], self.channels, patience_ms=COMMAND_PATIENCE_MS)

    async def link(
        self,
        *,
        name: str = LINK,
        groups: tuple[str, ...] = (".*",),
        topics: tuple[str, ...] = (".*",),
        sync: SyncPolicy = SyncPolicy.NONE,
        sync_timeout_ms: int = SYNC_TIMEOUT_MS,
    ) -> LinkRecord:
        """Create the link."""
        spec = self.spec(name=name, groups=groups, topics=topics, sync=sync, sync_timeout_ms=sync_timeout_ms)
        return await create_link(spec, source=self.client("a"), target=self.client("b"))

    def spec(
        self,
        *,
        name: str = LINK,
        groups: tuple[str, ...] = (".*",),
        topics: tuple[str, ...] = (".*",),
        sync: SyncPolicy = SyncPolicy.NONE,
        sync_timeout_ms: int = SYNC_TIMEOUT_MS,
    ) -> LinkSpec:
        """The request for the link."""
        return LinkSpec(
            name=name,
            source_site="a",
            target_site="b",
            source=SiteAddresses(bootstrap_servers=self.a.link, agents=(self.a.peer_agent,)),
            target=SiteAddresses(bootstrap_servers=self.b.link, agents=(self.b.peer_agent,)),
            topic_whitelist=topics,
            group_whitelist=groups,
            sync=sync,
            sync_timeout_ms=sync_timeout_ms,
        )

    def start_mirror(
        self, into: str = "b", *, link: str = LINK, name: str = "", settings: Mapping[str, str] | None = None
    ) -> RunningProcess:
        """Run a link's mirror into a site; `name` distinguishes daemons of one link."""
        directory = self._directory / f"mirror-{link}-into-{into}{name}"
        self.mirror_grpc = self.mirrors[into] = f"{LOOPBACK}:{free_ports(1)[0]}"
        self.mirror_site = into
        arguments = [
            f"link.name={link}",
            f"site.agents={self.agents[into][0]}",
            "topics.refresh.interval.ms=100",
            f"antipode.grpc.listener={self.mirror_grpc}",
            *(f"{key}={value}" for key, value in (settings or {}).items()),
        ]
        self.mirror = self._processes.run_command(
            directory.name,
            [sys.executable, "-m", "tests.support.pairs.lone_mirror", *arguments],
            directory,
            {"PYTHONPATH": str(REPOSITORY)},
        )
        return self.mirror

    def environment(self) -> dict[str, Any]:
        """The environment as `antipode up` prints it, with the processes that there are."""
        assert self.mirror is not None
        assert self._toxiproxy is not None
        return {
            "sites": {
                site.name: {
                    "bootstrap_servers": site.bootstrap,
                    "grpc": [site.agent],
                    "processes": [_described(site.process.child)],
                }
                for site in (self.a, self.b)
            },
            "links": [
                {
                    "name": LINK,
                    "source": "a",
                    "target": "b",
                    "proxies": [
                        {"name": f"{site.name}-{kind}", "site": site.name, "kind": kind}
                        for site in (self.a, self.b)
                        for kind in site.proxies
                    ],
                }
            ],
            "mirrors": [
                {
                    **_described(self.mirror.child),
                    "name": LINK,
                    "link": LINK,
                    "site": self.mirror_site,
                    "grpc": self.mirror_grpc,
                }
            ],
            "toxiproxy": {"api": f"{LOOPBACK}:{self._toxiproxy.port}"},
        }

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic at site a."""
        async with KafkaClient(self.a.bootstrap, site_local=True) as client:
            await client.create_topics([NewTopic(name=name, partition_count=partitions, replication_factor=1)])

    async def describe(self, site: str) -> DescribeLinkReply:
        """The link at a site. The agent is asked again if it does not answer within a few seconds:
        it may be paused.
        """
        retrying = jittered_backoff(retry_on=(SiteUnreachable, SiteRefused), budget_ms=ANSWERED_WITHIN_MS)
        reply: DescribeLinkReply = await retrying(self.client(site).describe_link, LINK)
        return reply

    async def is_writable(self, site: str) -> bool:
        """True if every partition of the link takes writes at the site."""
        reply = await self.describe(site)
        return bool(reply.partitions) and all(item.is_writable for item in reply.partitions)

    async def ends(self, site: str) -> dict[tuple[str, int], int]:
        """Log ends of the carried partitions."""
        reply = await self.describe(site)
        return {(item.topic, item.partition): item.log_end_offset for item in reply.partitions}


def _described(child: Child) -> dict[str, Any]:
    return {
        "name": child.name,
        "pid": child.pid(),
        "dir": str(child.directory),
        "log": str(child.log),
        "command": list(child.command),
        "env": dict(child.environment),
    }


async def run(properties: dict[str, str], stop: asyncio.Event) -> None:
    """One site's process, until `stop`."""
    settings = load_broker_settings(properties)
    os.makedirs(settings.log_dir, exist_ok=True)
    root, _, chroot = settings.zookeeper_connect.rpartition("/")
    parent = ZooKeeper(root)
    await parent.start()
    await parent.ensure_path(f"/{chroot}")
    await parent.stop()
    zookeeper = ZooKeeper(settings.zookeeper_connect, session_timeout_ms=settings.zookeeper_session_timeout_ms)
    await zookeeper.start()
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    broker = Broker(settings, server, Membership(settings, zookeeper, SystemClock()))
    candidate = ControllerCandidate(
        load_settings(ControllerSettings, properties),
        grpc_server=server,
        registry=new_registry(),
        heeds_altered_configs=True,
    )
    agent = SiteAgentHost(
        site_name=settings.site,
        zookeeper_connect=settings.zookeeper_connect,
        grpc_server=server,
        survey_security=lambda: security_survey(settings, broker.cluster.image),
    )
    port = await server.start()
    address = f"{LOOPBACK}:{port}"
    try:
        await candidate.start(grpc_address=address)
        await broker.start(grpc_port=port)
        await agent.start(address)
        await broker.ready.wait()
        print(json.dumps({"ready": os.getpid()}), flush=True)
        await stop.wait()
    finally:
        await agent.stop()
        await broker.stop()
        await candidate.stop()
        await server.stop()
        await zookeeper.stop()


if __name__ == "__main__":
    configure("full-site", level=os.environ.get("LOG_LEVEL", "INFO"))
    sys.exit(run_daemon(lambda stop: run(dict(argument.split("=", 1) for argument in sys.argv[1:]), stop)))
