"""Embedded sites: turns a `Layout` into files and child processes, brings them up in order and
takes them down again.

`antipode up`, the demo and the tests use it. Every wait is for a condition with a deadline; a part
that ends while it is waited for is an OperationalFailure with the end of its log.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kazoo.exceptions import NodeExistsError
from toxiproxy import Toxiproxy

from cli.embedding.parts import (
    STOP_TIMEOUT_MS,
    Part,
    Report,
    directory_held,
    end_left_over,
    log_size,
    together,
    until_ready,
)
from cli.embedding.security import grant_mirror_rights, secure, security_environment, zookeeper_users
from cli.embedding.site_layout import (
    ARBITER,
    ArbiterLayout,
    BridgeLayout,
    BrokerLayout,
    Layout,
    LinkLayout,
    MirrorLayout,
    SecurityLayout,
    SiteLayout,
    Wishes,
    bridge_properties,
    bridge_url,
    broker_properties,
    listeners,
    mirror_properties,
    plan,
    ports_needed,
    properties_text,
)
from deploy.ports import free_ports, is_free
from deploy.toxiproxy_server import ToxiproxyServer
from deploy.zookeeper_server import ZooKeeperServer
from dr.links.administration import LinkSpec, SiteAddresses, check_link, make_link
from dr.links.core.link_preflight import Outcome
from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient, SiteRefused
from runtime.addresses import parse_host_port
from runtime.children import Child
from runtime.compiled import ROOT
from runtime.disk import RealDisk, write_file
from runtime.grpc_server import open_channel
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from runtime.zookeeper.client import ZooKeeper
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, FailoverMode, SyncPolicy, blacklist_of
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import decode_cluster_id, encode_cluster_id

PORTS_FILE = "ports.json"
ENVIRONMENT_FILE = "environment.json"
ARBITER_REACHED_MS = 20_000
MIRROR_ADMIN = "antipode.control.MirrorAdmin"
"""Serves as soon as a mirror's process is up; the process itself is ready first when it mirrors a
partition.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFilters:
    """The topics that the links of embedded sites carry, by regular expressions on whole names, and
    whether the source waits for the target.
    """

    topic_whitelist: tuple[str, ...] = (".*",)
    topic_blacklist: tuple[str, ...] = DEFAULT_TOPIC_BLACKLIST
    group_whitelist: tuple[str, ...] = (".*",)
    group_blacklist: tuple[str, ...] = ()
    sync: SyncPolicy = SyncPolicy.NONE
    sync_bound_ms: int = 0
    lease_ms: int = 0
    failover_mode: FailoverMode = FailoverMode.MANUAL


def layout_in_directory(wishes: Wishes) -> Layout:
    """The layout for these wishes: with the ports that the directory used before, else with free
    ones.
    """
    file = wishes.directory / PORTS_FILE
    shape = {"sites": list(wishes.sites), "brokers": wishes.brokers, "is_secure": wishes.is_secure}
    try:
        if not file.exists():
            wishes.directory.mkdir(parents=True, exist_ok=True)
            _replace(file, json.dumps({**shape, "ports": free_ports(ports_needed(wishes))}))
        stored = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OperationalFailure(
            f"--dir {wishes.directory} cannot be used ({error.strerror}): accepted is a directory that can be written"
        ) from error
    except ValueError as error:
        raise OperationalFailure(f"{file} is not JSON: {error}; remove the directory to start afresh") from error
    stored.setdefault("is_secure", False)  # a directory of a release that knew no other
    if {key: stored.get(key) for key in shape} != shape:
        raise OperationalFailure(
            f"{wishes.directory} holds {_described(stored)}, not {_described(shape)}; give the same or another --dir"
        )
    missing = ports_needed(wishes) - len(stored["ports"])
    if missing > 0:  # the directory is of a release with fewer parts
        stored["ports"] += free_ports(missing)
        _replace(file, json.dumps(stored))
    return plan(wishes, stored["ports"])


def _described(shape: Mapping[str, Any]) -> str:
    security = " --secure" if shape.get("is_secure") else ""
    return f"sites {','.join(shape.get('sites', []))} with {shape.get('brokers')} brokers each{security}"


def _replace(file: Path, text: str) -> None:
    """A reader finds the former file or the whole new one, also when this process is killed."""
    write_file(RealDisk(), str(file), text.encode(), is_durable=False)


@dataclass(slots=True)
class EmbeddedSites:
    """The running parts of a layout. `start` brings all up, `stop` takes all down, also after a
    `start` that failed.
    """

    layout: Layout
    filters: LinkFilters
    broker_overrides: Mapping[str, str] = field(default_factory=dict)
    report: Report = lambda _: None
    _children: dict[str, Child] = field(default_factory=dict)

    async def start(self) -> dict[str, Any]:
        """Bring everything up; returns the environment that `antipode up --output json` prints."""
        if self.layout.security is not None:
            self.report("making certificates")
            secure(self.layout, self.layout.security)
        users = zookeeper_users(self.layout.security)
        zookeepers = [_zookeeper(site, users, self.layout.security) for site in self.layout.sites]
        zookeepers += (
            [_arbiter(self.layout.arbiter, users, self.layout.security)] if self.layout.arbiter is not None else []
        )
        proxies = [_toxiproxy(self.layout)] if self.layout.toxiproxy is not None else []
        brokers = [
            _broker(self.layout, site, broker, self.broker_overrides)
            for site in self.layout.sites
            for broker in site.brokers
        ]
        mirrors = [_mirror(mirror, self.layout.security) for mirror in self.layout.mirrors]
        bridges = [_bridge(self.layout.bridge, self.layout.security)] if self.layout.bridge is not None else []
        await end_left_over([*bridges, *mirrors, *brokers, *proxies, *zookeepers], self.report)
        _refuse_taken_ports(self.layout)
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
        _replace(self.layout.directory / ENVIRONMENT_FILE, json.dumps(environment, indent=2))
        return environment

    @asynccontextmanager
    async def running(self, stop: asyncio.Event) -> AsyncIterator[dict[str, Any] | None]:
        """Start; stop when the block ends. The block gets the environment, or None when `stop` was
        set before all was up.
        """
        with directory_held(self.layout.directory):
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
            stopped = await asyncio.gather(
                *(asyncio.to_thread(self._children[name].stop, timeout_ms=STOP_TIMEOUT_MS) for name in wave)
            )
            killed += [name for name, was_orderly in zip(wave, stopped, strict=True) if not was_orderly]
        return killed

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
        part.child.start()  # not in a thread: there is no moment at which it runs and `stop` does not know it
        self._children[part.child.name] = part.child
        await until_ready(part, log_start=log_start)


def _refuse_taken_ports(layout: Layout) -> None:
    taken = [f"{address} ({what})" for what, address in listeners(layout) if not is_free(parse_host_port(address).port)]
    if taken:
        raise OperationalFailure(
            f"in use by another program: {', '.join(taken)}; stop it, or remove {layout.directory / PORTS_FILE} to have other ports chosen"
        )


def _zookeeper(site: SiteLayout, users: Mapping[str, str] | None, security: SecurityLayout | None) -> Part:
    name = f"zookeeper-{site.name}"
    server = ZooKeeperServer(
        name=name,
        certificate=None if security is None else security.identity(name),
        authority=None if security is None else security.authority,
        directory=site.directory / "zookeeper",
        port=parse_host_port(site.zookeeper).port,
        users=users,
    )
    return Part(child=server.child(), is_ready=lambda: asyncio.to_thread(server.is_serving))


def _toxiproxy(layout: Layout) -> Part:
    assert layout.toxiproxy is not None
    server = ToxiproxyServer(
        name="toxiproxy", directory=layout.directory / "toxiproxy", port=parse_host_port(layout.toxiproxy).port
    )
    return Part(child=server.child(), is_ready=lambda: asyncio.to_thread(server.is_serving))


def _arbiter(arbiter: ArbiterLayout, users: Mapping[str, str] | None, security: SecurityLayout | None) -> Part:
    server = ZooKeeperServer(
        name=ARBITER,
        certificate=None if security is None else security.identity(ARBITER),
        authority=None if security is None else security.authority,
        directory=arbiter.directory,
        port=parse_host_port(arbiter.zookeeper).port,
        users=users,
    )
    return Part(child=server.child(), is_ready=lambda: asyncio.to_thread(server.is_serving))


def _broker(layout: Layout, site: SiteLayout, broker: BrokerLayout, overrides: Mapping[str, str]) -> Part:
    properties = {**broker_properties(site, broker, layout.arbiter, layout.security), **overrides}
    child = _daemon("broker", broker.name, broker.directory, "server.properties", properties)
    return Part(child=child, is_ready=lambda: is_healthy(broker.grpc, service=""))


def _mirror(mirror: MirrorLayout, security: SecurityLayout | None) -> Part:
    properties = mirror_properties(mirror, security)
    child = _daemon("mirror", f"mirror-{mirror.name}", mirror.directory, "mirror.properties", properties)
    return Part(child=child, is_ready=lambda: is_healthy(mirror.grpc, service=MIRROR_ADMIN))


def _bridge(bridge: BridgeLayout, security: SecurityLayout | None) -> Part:
    properties = bridge_properties(bridge, security)
    url, trusted = f"{bridge_url(bridge, security)}/health", None if security is None else security.authority
    child = _daemon("bridge", "bridge", bridge.directory, "bridge.properties", properties)
    return Part(child=child, is_ready=lambda: asyncio.to_thread(_answers, url, trusted))


def _answers(url: str, trusted: Path | None) -> bool:
    session = requests.Session()
    session.trust_env = False
    session.verify = True if trusted is None else str(trusted)
    with session:
        try:
            return session.get(url, timeout=1).ok
        except requests.RequestException:
            return False


def _daemon(command: str, name: str, directory: Path, file_name: str, properties: dict[str, str]) -> Child:
    directory.mkdir(parents=True, exist_ok=True)
    configuration = directory / file_name
    configuration.write_text(properties_text(properties), encoding="utf-8")
    return Child(
        name=name,
        command=[sys.executable, "-m", "cli.main", command, "--config", str(configuration)],
        directory=directory,
        log=directory / f"{name}.log",
        environment={"PYTHONPATH": str(ROOT)},
    )


async def is_healthy(address: str, *, service: str) -> bool:
    """True if the gRPC server at the address reports that the service serves."""
    async with open_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=1)
        except grpc.aio.AioRpcError:
            return False
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


async def _agree_cluster_id(connect: str, cluster_id: str) -> str:
    """Store the cluster id unless one is there; returns the one that holds. Sites of an exact link
    share it.
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


async def ensure_link(link: LinkLayout, filters: LinkFilters) -> None:
    """Make the link unless it is there. OperationalFailure when it is there with other filters, or
    another sync policy.
    """
    channels = Channels()
    try:
        source, target = (
            SiteClient(site.name, [broker.grpc for broker in site.brokers], channels)
            for site in (link.source, link.target)
        )
        spec = _link_spec(link, filters)
        stored = await _stored_link(link.name, target)
        if stored is None:
            await _create_link(spec, source=source, target=target)
        elif not _has_filters_of(stored, spec):
            raise OperationalFailure(
                f"link {link.name} exists and carries topics {','.join(stored.topic_whitelist)} without "
                f"{','.join(blacklist_of(stored)) or 'exception'}, sync policy {stored.sync_policy or 'none'}; give the same "
                "--whitelist, --blacklist and --sync, or another --dir"
            )
    finally:
        await channels.close()


async def _create_link(spec: LinkSpec, *, source: SiteClient, target: SiteClient) -> None:
    """Make the link; brokers that have just started may not have reached the arbiter yet."""
    async for attempt in jittered_backoff(retry_on=OperationalFailure, budget_ms=ARBITER_REACHED_MS):
        with attempt:
            checked = await check_link(spec, source=source, target=target)
            if any(check.check == "arbiter" and check.outcome is Outcome.REFUSED for check in checked.checks):
                raise OperationalFailure("; ".join(checked.problems))
    await make_link(checked, source=source, target=target)


async def _stored_link(name: str, client: SiteClient) -> LinkRecord | None:
    try:
        return (await client.describe_link(name)).record
    except SiteRefused as refused:
        if refused.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise


def _link_spec(link: LinkLayout, filters: LinkFilters) -> LinkSpec:
    return LinkSpec(
        name=link.name,
        source_site=link.source.name,
        target_site=link.target.name,
        source=_addresses(link.source),
        target=_addresses(link.target),
        topic_whitelist=filters.topic_whitelist,
        topic_blacklist=filters.topic_blacklist,
        group_whitelist=filters.group_whitelist,
        group_blacklist=filters.group_blacklist,
        sync=filters.sync,
        sync_bound_ms=filters.sync_bound_ms,
        lease_ms=filters.lease_ms,
        failover_mode=filters.failover_mode,
    )


def _addresses(site: SiteLayout) -> SiteAddresses:
    return SiteAddresses(
        bootstrap_servers=site.link_bootstrap_servers, agents=[broker.grpc_advertised for broker in site.brokers]
    )


def _has_filters_of(record: LinkRecord, spec: LinkSpec) -> bool:
    """True if the stored link carries the requested topics. A link that lists nothing and is older
    than the default has the default.
    """
    is_older_default = not record.is_blacklist_complete and not record.topic_blacklist
    return (
        tuple(record.topic_whitelist),
        DEFAULT_TOPIC_BLACKLIST if is_older_default else tuple(record.topic_blacklist),
        tuple(record.group_whitelist),
        tuple(record.group_blacklist),
        record.sync_policy,
    ) == (spec.topic_whitelist, spec.topic_blacklist, spec.group_whitelist, spec.group_blacklist, spec.sync.value)
