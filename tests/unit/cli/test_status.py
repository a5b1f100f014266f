"""One look at a link whose mirror takes its time to answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from cli.status import look, problems
from dr.environment import Environment, EnvironmentLink, EnvironmentMirror, EnvironmentSite
from tests.support.ports import LOOPBACK
from wire.control import mirror_pb2, mirror_pb2_grpc, site_pb2, site_pb2_grpc
from wire.control.cluster_pb2 import LinkRecord, SiteView

RECORD = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


class Agent(site_pb2_grpc.SiteAgentServicer):
    """Of either site: it knows the link."""

    async def GetSiteView(self, request: Any, context: Any) -> site_pb2.GetSiteViewReply:
        return site_pb2.GetSiteViewReply(view=SiteView(controller_id=1))

    async def ListLinks(self, request: Any, context: Any) -> site_pb2.ListLinksReply:
        return site_pb2.ListLinksReply()

    async def DescribeLink(self, request: Any, context: Any) -> site_pb2.DescribeLinkReply:
        return site_pb2.DescribeLinkReply(record=RECORD)


class SlowMirror(mirror_pb2_grpc.MirrorAdminServicer):
    """Needs a second, and does not begin when it has less."""

    async def DescribeMirror(self, request: Any, context: Any) -> mirror_pb2.DescribeMirrorReply:
        if context.time_remaining() < 1:
            await asyncio.Event().wait()
        return mirror_pb2.DescribeMirrorReply(link="a-b", state="MIRRORING")


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    server = grpc.aio.server()
    site_pb2_grpc.add_SiteAgentServicer_to_server(Agent(), server)  # type: ignore[no-untyped-call]
    mirror_pb2_grpc.add_MirrorAdminServicer_to_server(SlowMirror(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        await server.stop(None)


async def test_a_mirror_that_is_slow_to_answer_is_not_told_to_be_silent(monkeypatch: Any) -> None:
    monkeypatch.setattr("cli.status.MIRROR_TIMEOUT_S", 60.0)
    parts: Any = {"pid": None, "dir": "", "log": "", "command": (), "env": {}}
    async with serving() as address:
        site = EnvironmentSite(bootstrap_servers="", grpc=(address,), processes=())
        known = Environment(
            sites={"a": site, "b": site},
            links=(EnvironmentLink(name="a-b", source="a", target="b"),),
            mirrors=(EnvironmentMirror(name="a-b", grpc=address, **parts),),
        )
        found = await look(known)
    (link,) = found["links"]
    assert link["mirror"] == "MIRRORING"
    assert problems(found["sites"], found["links"]) == []
