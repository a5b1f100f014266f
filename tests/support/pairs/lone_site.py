"""A lone broker that is a site: beside its small controller it serves a small site agent, so that a
mirror finds a link.

`python -m tests.support.pairs.lone_site key=value...` runs it. The agent keeps one set of link
records in a file, sends them to the broker, and confirms them by itself, because no other site
exists. Only what a mirror calls is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from broker.main import Broker
from broker.settings.loading import load_broker_settings
from runtime.grpc_server import GrpcServer, open_channel
from runtime.logs import configure
from runtime.process import run_daemon
from tests.support.lone_brokers.lone_broker import CLUSTER_ID, LoneController, LoneMembership
from wire.control import broker_pb2, cluster_pb2, controller_pb2_grpc, site_pb2, site_pb2_grpc
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.znodes.broker_znodes import BrokerRegistration


class LinkedController(LoneController):
    """Also gives the broker its links."""

    def __init__(self, state_path: str, site: str) -> None:
        super().__init__(state_path)
        self.site = site
        self.links: dict[str, cluster_pb2.LinkRecord] = {}
        self.registration: BrokerRegistration | None = None
        self._links_path = state_path + ".links"
        if os.path.exists(self._links_path):
            with open(self._links_path, "rb") as state:
                kept = broker_pb2.ControlBatch.FromString(state.read())
            self.links = {link.name: link for link in kept.links}

    async def begin(self, registration: BrokerRegistration) -> None:
        self.registration = registration
        await super().begin(registration)
        await self._confirm()

    async def adopt(self, record: cluster_pb2.LinkRecord) -> None:
        """Store the link and have the broker enforce it."""
        self.links[record.name] = record
        self._keep_links()
        await self._send()
        await self._confirm()

    def _keep_links(self) -> None:
        kept = broker_pb2.ControlBatch(links=self.links.values())
        Path(self._links_path).write_bytes(kept.SerializeToString())

    async def _confirm(self) -> None:
        assert self.registration is not None
        stub: Any = BrokerControlStub(open_channel(self.registration.grpc_address))  # type: ignore[no-untyped-call]
        for record in self.links.values():
            await stub.ConfirmLink(broker_pb2.ConfirmLinkRequest(link=record.name, epoch=record.epoch))

    async def _send(self, **fields: Any) -> None:
        await super()._send(links=list(self.links.values()), **fields)


class LoneAgent(site_pb2_grpc.SiteAgentServicer):
    """ListLinks, GetSiteView and AdoptLink."""

    def __init__(self, controller: LinkedController) -> None:
        self._controller = controller

    async def ListLinks(self, request: Any, context: Any) -> site_pb2.ListLinksReply:
        links = [site_pb2.LinkStatus(record=record, is_confirmed=True) for record in self._controller.links.values()]
        return site_pb2.ListLinksReply(site=self._controller.site, links=links)

    async def GetSiteView(self, request: Any, context: Any) -> site_pb2.GetSiteViewReply:
        registration = self._controller.registration
        assert registration is not None
        broker = cluster_pb2.BrokerInfo(
            node_id=registration.node_id,
            endpoints=[
                cluster_pb2.Endpoint(listener=end.listener, host=end.host, port=end.port)
                for end in registration.endpoints
            ],
        )
        view = cluster_pb2.SiteView(site=self._controller.site, cluster_id=CLUSTER_ID, brokers=[broker])
        return site_pb2.GetSiteViewReply(view=view)

    async def AdoptLink(self, request: site_pb2.AdoptLinkRequest, context: Any) -> site_pb2.LinkReply:
        await self._controller.adopt(request.record)
        return site_pb2.LinkReply(record=request.record)


async def run(properties: dict[str, str], stop: asyncio.Event) -> None:
    """Run until `stop`."""
    settings = load_broker_settings(properties)
    os.makedirs(settings.log_dir, exist_ok=True)
    membership = LoneMembership(Path(settings.log_dir).parent / "broker-configs.json")
    server = GrpcServer(settings.grpc_listener.host, settings.grpc_listener.port)
    broker = Broker(settings, server, membership)
    controller = LinkedController(f"{settings.log_dir}/../lone-controller.state", settings.site)
    controller_pb2_grpc.add_ControllerServicer_to_server(controller, server.server)  # type: ignore[no-untyped-call]
    site_pb2_grpc.add_SiteAgentServicer_to_server(LoneAgent(controller), server.server)  # type: ignore[no-untyped-call]
    grpc_port = await server.start()
    membership.address = f"127.0.0.1:{grpc_port}"
    try:
        await broker.start(grpc_port=grpc_port)
        assert membership.registration is not None
        await controller.begin(membership.registration)
        await broker.ready.wait()
        print(json.dumps({"ready": broker.ports, "grpc": grpc_port}), flush=True)
        await stop.wait()
    finally:
        await broker.stop()
        await server.stop()


if __name__ == "__main__":
    configure("lone-site", level=os.environ.get("LOG_LEVEL", "INFO"))
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.exit(run_daemon(lambda stop: run(given, stop)))
