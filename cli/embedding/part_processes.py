"""The processes of embedded sites: how each part is started, and when it is ready."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grpc
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.embedding.part_properties import (
    bridge_properties,
    bridge_url,
    broker_properties,
    mirror_properties,
    properties_text,
)
from cli.embedding.parts import (
    Part,
)
from cli.embedding.site_layout import (
    ARBITER,
    ArbiterLayout,
    BridgeLayout,
    BrokerLayout,
    Layout,
    MirrorLayout,
    SecurityLayout,
    SiteLayout,
)
from deploy.toxiproxy_server import ToxiproxyServer
from deploy.zookeeper_server import ZooKeeperServer
from runtime.addresses import parse_host_port
from runtime.children import Child
from runtime.compiled import ROOT
from runtime.grpc_server import open_channel

MIRROR_ADMIN: Final = "antipode.control.MirrorAdmin"
"""Serves as soon as a mirror's process is up; the process itself is ready first when it mirrors a
partition.
"""


def zookeeper_part(site: SiteLayout, users: Mapping[str, str] | None, security: SecurityLayout | None) -> Part:
    """The ZooKeeper of a site; `users` are its logins, None for a plain one."""
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


def toxiproxy_part(layout: Layout) -> Part:
    """The toxiproxy between the sites."""
    assert layout.toxiproxy is not None
    server = ToxiproxyServer(
        name="toxiproxy", directory=layout.directory / "toxiproxy", port=parse_host_port(layout.toxiproxy).port
    )
    return Part(child=server.child(), is_ready=lambda: asyncio.to_thread(server.is_serving))


def arbiter_part(arbiter: ArbiterLayout, users: Mapping[str, str] | None, security: SecurityLayout | None) -> Part:
    """The ZooKeeper of the arbiter."""
    server = ZooKeeperServer(
        name=ARBITER,
        certificate=None if security is None else security.identity(ARBITER),
        authority=None if security is None else security.authority,
        directory=arbiter.directory,
        port=parse_host_port(arbiter.zookeeper).port,
        users=users,
    )
    return Part(child=server.child(), is_ready=lambda: asyncio.to_thread(server.is_serving))


def broker_part(layout: Layout, site: SiteLayout, broker: BrokerLayout, overrides: Mapping[str, str]) -> Part:
    """A broker; `overrides` replace properties of its file."""
    properties = {**broker_properties(site, broker, layout.arbiter, layout.security), **overrides}
    child = _daemon("broker", broker.name, broker.directory, "server.properties", properties)
    return Part(child=child, is_ready=lambda: is_healthy(broker.grpc, service=""))


def mirror_part(mirror: MirrorLayout, security: SecurityLayout | None) -> Part:
    """A mirror daemon."""
    properties = mirror_properties(mirror, security)
    child = _daemon("mirror", f"mirror-{mirror.name}", mirror.directory, "mirror.properties", properties)
    return Part(child=child, is_ready=lambda: is_healthy(mirror.grpc, service=MIRROR_ADMIN))


def bridge_part(bridge: BridgeLayout, security: SecurityLayout | None) -> Part:
    """The HTTP bridge."""
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
