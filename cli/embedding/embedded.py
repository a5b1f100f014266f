"""Embedded sites: turns a `Layout` into files and child processes, brings them up in order and
takes them down again.

`antipode up`, the demo and the tests use it. Every wait is for a condition with a deadline; if a
part ends during the wait, OperationalFailure has the end of its log.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field
from typing import Any

from kazoo.exceptions import NodeExistsError
from toxiproxy import Toxiproxy

from cli.embedding.link_setup import LinkFilters, ensure_link
from cli.embedding.part_processes import (
    arbiter_part,
    bridge_part,
    broker_part,
    mirror_part,
    toxiproxy_part,
    zookeeper_part,
)
from cli.embedding.part_properties import (
    bridge_url,
)
from cli.embedding.parts import (
    Part,
    Report,
    directory_held,
    end_left_over,
    log_size,
    stopped,
    together,
    until_ready,
)
from cli.embedding.port_file import refuse_taken_ports, replace_file
from cli.embedding.security import grant_mirror_rights, secure, security_environment, zookeeper_users
from cli.embedding.site_layout import (
    ARBITER,
    Layout,
    LinkLayout,
    SiteLayout,
)
from runtime.addresses import parse_host_port
from runtime.children import Child, forked_by
from runtime.forking.fork_server import own_fork_server
from runtime.process import before_sudden_end
from runtime.zookeeper.client import ZooKeeper
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import decode_cluster_id, encode_cluster_id

ENVIRONMENT_FILE = "environment.json"


@dataclass(slots=True)
class EmbeddedSites:
    """The running parts of a layout. `start` brings all up, `stop` takes all down, also after a
    `start` that failed.
    """

    layout: Layout
    filters: LinkFilters
    preloaded: tuple[str, ...]
    """Modules that the fork server of the parts imports once for all of them."""
    broker_overrides: Mapping[str, str] = field(default_factory=dict)
    report: Report = lambda _: None
    _children: dict[str, Child] = field(default_factory=dict)

    async def start(self) -> dict[str, Any]:
        """Bring everything up; returns the environment that `antipode up --output json` prints."""
        if self.layout.security is not None:
            self.report("making certificates")
            secure(self.layout, self.layout.security)
        users = zookeeper_users(self.layout.security)
        zookeepers = [zookeeper_part(site, users, self.layout.security) for site in self.layout.sites]
        zookeepers += (
            [arbiter_part(self.layout.arbiter, users, self.layout.security)] if self.layout.arbiter is not None else []
        )
        proxies = [toxiproxy_part(self.layout)] if self.layout.toxiproxy is not None else []
        brokers = [
            broker_part(self.layout, site, broker, self.broker_overrides)
            for site in self.layout.sites
            for broker in site.brokers
        ]
        mirrors = [mirror_part(mirror, self.layout.security) for mirror in self.layout.mirrors]
        bridges = [bridge_part(self.layout.bridge, self.layout.security)] if self.layout.bridge is not None else []
        await end_left_over([*bridges, *mirrors, *brokers, *proxies, *zookeepers], self.report)
        refuse_taken_ports(self.layout)
        self.report("starting ZooKeeper")
        await together(*(self._start(part) for part in (*zookeepers, *proxies)))
        await asyncio.to_thread(create_proxies, self.layout)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for site in self.layout.sites:
            cluster_id = await _agree_cluster_id(site.zookeeper, cluster_id)
        self.report("starting brokers")
        await together(*(self._start(part) for part in brokers))
        if self.layout.security is not None and self.layout.mirrors:
            await asyncio.gather(*(grant_mirror_rights(site) for site in self.layout.sites))
        for link in self.layout.links:
            self.report(f"linking {link.source.name} to {link.target.name}")
            await ensure_link(link, self.filters)
        await together(*(self._start(part) for part in mirrors))
        for part in bridges:
            self.report("starting the HTTP bridge")
            await self._start(part)
        environment = self.environment()
        replace_file(self.layout.directory / ENVIRONMENT_FILE, json.dumps(environment, indent=2))
        return environment

    @asynccontextmanager
    async def running(self, stop: asyncio.Event) -> AsyncIterator[dict[str, Any] | None]:
        """Start; stop when the block ends. The block gets the environment, or None when `stop` was
        set before all was up. A second signal kills all parts.
        """
        with (
            directory_held(self.layout.directory),
            closing(own_fork_server(self.preloaded)) as server,
            forked_by(server),
            before_sudden_end(self._kill_now),
        ):
            starting, stopping = asyncio.ensure_future(self.start()), asyncio.ensure_future(stop.wait())
            try:
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                yield starting.result() if starting.done() else None
            finally:
                for pending in (starting, stopping):
                    pending.cancel()
                await asyncio.gather(starting, stopping, return_exceptions=True)
                self.report("stopping")
                killed = await self.stop()
                if killed:
                    self.report(f"killed at the deadline: {', '.join(killed)}")

    async def stop(self) -> list[str]:
        """End everything, clients first; returns the names of parts that had to be killed."""
        names = list(self._children)
        waves = [
            [name for name in names if name.startswith(prefix)]
            for prefix in ("bridge", "mirror", "broker", "toxiproxy", "zookeeper", "arbiter")
        ]
        killed: list[str] = []
        for wave in waves:
            outcomes = await asyncio.gather(*(stopped(self._children[name]) for name in wave))
            killed += [name for name, was_orderly in zip(wave, outcomes, strict=True) if not was_orderly]
        return killed

    def _kill_now(self) -> None:
        for child in tuple(self._children.values()):
            child.kill_now()

    def environment(self) -> dict[str, Any]:
        """The description of the running sites for programs that use, harm or restart them."""
        document: dict[str, Any] = {
            "directory": str(self.layout.directory),
            "sites": {site.name: self._site_environment(site) for site in self.layout.sites},
            "links": [self._link_environment(link) for link in self.layout.links],
            "mirrors": [
                {
                    **self._process(f"mirror-{mirror.name}"),
                    "name": mirror.name,
                    "link": mirror.link,
                    "site": mirror.target.name,
                    "metrics": mirror.metrics,
                    "grpc": mirror.grpc,
                }
                for mirror in self.layout.mirrors
            ],
        }
        if self.layout.bridge is not None:
            document["bridge"] = {
                **self._process("bridge"),
                "url": bridge_url(self.layout.bridge, self.layout.security),
                "metrics": self.layout.bridge.metrics,
            }
        if self.layout.arbiter is not None:
            document["arbiter"] = {**self._process(ARBITER), "connect": self.layout.arbiter.zookeeper}
        if self.layout.security is not None:
            document["security"] = security_environment(self.layout.security, has_bridge=self.layout.bridge is not None)
        if self.layout.toxiproxy is not None:
            document["toxiproxy"] = {"api": self.layout.toxiproxy, **self._process("toxiproxy")}
        return document

    def _site_environment(self, site: SiteLayout) -> dict[str, Any]:
        names = [f"zookeeper-{site.name}", *(broker.name for broker in site.brokers)]
        return {
            "bootstrap_servers": site.bootstrap_servers,
            "link_bootstrap_servers": site.link_bootstrap_servers,
            "zookeeper": site.zookeeper,
            "grpc": [broker.grpc for broker in site.brokers],
            "metrics": [broker.metrics for broker in site.brokers],
            "processes": [self._process(name) for name in names],
        }

    def _link_environment(self, link: LinkLayout) -> dict[str, Any]:
        sites = (link.source.name, link.target.name)
        return {
            "name": link.name,
            "source": link.source.name,
            "target": link.target.name,
            "proxies": [asdict(proxy) for proxy in self.layout.proxies if proxy.site in sites],
        }

    def _process(self, name: str) -> dict[str, Any]:
        child = self._children[name]
        return {
            "name": name,
            "pid": child.pid(),
            "dir": str(child.directory),
            "log": str(child.log),
            "command": list(child.command),
            "env": dict(child.environment),
        }

    async def _start(self, part: Part) -> None:
        log_start = log_size(part.child)
        # not in a thread, so that `stop` knows every process that has been started
        part.child.start()
        self._children[part.child.name] = part.child
        await until_ready(part, log_start=log_start)


async def _agree_cluster_id(connect: str, cluster_id: str) -> str:
    """Store the cluster id unless one is stored already; returns the stored one. Sites of an exact
    link share it.
    """
    zookeeper = ZooKeeper(connect)
    await zookeeper.start()
    try:
        await zookeeper.create(znodes.CLUSTER_ID, encode_cluster_id(cluster_id), make_path=True)
    except NodeExistsError:
        payload, _ = await zookeeper.get(znodes.CLUSTER_ID)
        return decode_cluster_id(payload)
    finally:
        await zookeeper.stop()
    return cluster_id


def create_proxies(layout: Layout) -> None:
    """Make the layout's proxies at its toxiproxy, where they are not there yet."""
    if layout.toxiproxy is None:
        return
    host, port = parse_host_port(layout.toxiproxy)
    server = Toxiproxy()
    server.update_api_consumer(host, port)
    existing = server.proxies()
    for proxy in layout.proxies:
        if proxy.name not in existing:
            server.create(name=proxy.name, listen=proxy.listen, upstream=proxy.upstream)
