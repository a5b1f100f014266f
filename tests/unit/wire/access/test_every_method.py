"""Every method of the control plane at a real server: a role that may not call it is refused, and
one that may gets through to the service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from runtime.grpc_server import GrpcServer, Protection, open_channel, protect_control_plane
from tests.support.security.identities import Identities
from wire.access.core.roles import RULES, Role
from wire.access.protection import protect_client, protect_daemon
from wire.control import broker_pb2_grpc, controller_pb2_grpc, mirror_pb2_grpc, site_pb2_grpc
from wire.control.controller_pb2 import DeleteTopicsRequest
from wire.control.site_pb2 import GetSharedAccessRequest, RecordSharedAccessRequest

HOST = "127.0.0.1"
BODIES = {
    "/antipode.control.Controller/DeleteTopics": DeleteTopicsRequest(link="someone").SerializeToString(),
    "/antipode.control.SiteAgent/GetSharedAccess": GetSharedAccessRequest(link="someone").SerializeToString(),
    "/antipode.control.SiteAgent/RecordSharedAccess": RecordSharedAccessRequest(link="someone").SerializeToString(),
}
"""The requests in which a mirror has to name its link; the others are empty."""
OURS = sorted(method for method in RULES if method.startswith("/antipode."))


@pytest.fixture(autouse=True)
def plaintext_again() -> Iterator[None]:
    yield
    protect_control_plane(Protection())


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities(tmp_path)


@pytest.fixture
async def address(identities: Identities) -> AsyncIterator[str]:
    """A server of all services, none of whose methods does anything: UNIMPLEMENTED."""
    protect_daemon(identities.control("broker-1", "antipode://broker/broker-1"))
    server = GrpcServer(HOST, 0)
    broker_pb2_grpc.add_BrokerControlServicer_to_server(broker_pb2_grpc.BrokerControlServicer(), server.server)  # type: ignore[no-untyped-call]
    controller_pb2_grpc.add_ControllerServicer_to_server(controller_pb2_grpc.ControllerServicer(), server.server)  # type: ignore[no-untyped-call]
    mirror_pb2_grpc.add_MirrorAdminServicer_to_server(mirror_pb2_grpc.MirrorAdminServicer(), server.server)  # type: ignore[no-untyped-call]
    site_pb2_grpc.add_SiteAgentServicer_to_server(site_pb2_grpc.SiteAgentServicer(), server.server)  # type: ignore[no-untyped-call]
    port = await server.start()
    yield f"{HOST}:{port}"
    await server.stop(grace_s=0)


async def codes(address: str, properties: Mapping[str, str]) -> dict[str, grpc.StatusCode]:
    """The status of a request to each method that asks for nothing."""
    protect_control_plane(Protection())
    protect_client(properties)
    found: dict[str, grpc.StatusCode] = {}
    async with open_channel(address) as channel:
        for method in OURS:
            call: Any = channel.unary_unary(method)
            try:
                await call(BODIES.get(method, b""), timeout=20)
            except grpc.aio.AioRpcError as error:
                found[method] = error.code()
    return found


@pytest.mark.parametrize("role", list(Role))
async def test_a_role_reaches_the_methods_of_its_row_and_no_other(
    role: Role, address: str, identities: Identities
) -> None:
    caller = identities.control(role.value, f"antipode://{role}/someone")
    expected = {
        method: grpc.StatusCode.UNIMPLEMENTED if role in RULES[method].roles else grpc.StatusCode.PERMISSION_DENIED
        for method in OURS
    }
    assert await codes(address, caller) == expected


async def test_a_caller_without_a_role_reaches_no_method(address: str, identities: Identities) -> None:
    assert set((await codes(address, identities.control("nameless"))).values()) == {grpc.StatusCode.PERMISSION_DENIED}


async def test_a_caller_with_a_certificate_of_another_authority_reaches_no_method(
    address: str, identities: Identities
) -> None:
    stranger = Identities(identities.directory / "other").control("x", "antipode://operator/eve")
    assert set((await codes(address, stranger)).values()) == {grpc.StatusCode.UNAVAILABLE}
