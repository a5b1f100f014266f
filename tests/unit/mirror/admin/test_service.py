"""The mirror's admin service over gRPC, and the callers that it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from mirror.admin.service import MirrorAdminService
from mirror.admin.verifier import Comparison
from mirror.flow.core.flow_state import FlowState
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.processes.ports import LOOPBACK
from wire.control import mirror_pb2, mirror_pb2_grpc
from wire.protocol.ids import TopicPartition


@pytest.fixture
async def stub() -> AsyncIterator[Any]:
    """A stub for the mirror of link a-b, which has not found its link yet."""
    async with serving(MirrorAdminService("a-b")) as stub:
        yield stub


@asynccontextmanager
async def serving(service: MirrorAdminService) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    mirror_pb2_grpc.add_MirrorAdminServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        yield mirror_pb2_grpc.MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
    await server.stop(None)


async def answered(stub: Any, call: str, request: Any) -> None:
    """Asks, and reads the whole answer."""
    answer = getattr(stub, call)(request, timeout=30)
    if call == "VerifyMirror":
        async for _ in answer:
            pass
    else:
        await answer


@pytest.mark.parametrize(
    ("call", "request_type"),
    [
        ("DescribeMirror", mirror_pb2.DescribeMirrorRequest),
        ("PauseMirror", mirror_pb2.PauseMirrorRequest),
        ("ResumeMirror", mirror_pb2.PauseMirrorRequest),
        ("ResetTopics", mirror_pb2.ResetTopicsRequest),
        ("VerifyMirror", mirror_pb2.VerifyMirrorRequest),
    ],
)
async def test_a_request_that_means_another_link_s_mirror_is_refused(stub: Any, call: str, request_type: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="mirror of link a-b, not of b-a") as refused:
        await answered(stub, call, request_type(link="b-a"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_mirror_without_its_link_reports_this_for_its_link_and_for_none(stub: Any) -> None:
    for link in ("a-b", ""):
        described = await stub.DescribeMirror(mirror_pb2.DescribeMirrorRequest(link=link), timeout=30)
        assert (described.link, described.state) == ("a-b", "PREPARING")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answered(stub, "PauseMirror", mirror_pb2.PauseMirrorRequest(link=link))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


class Agreeing:
    """A Verifier that finds every partition equal."""

    async def compare(self, key: TopicPartition, *, mirrored_end: int, last_offsets: int) -> Comparison:
        return Comparison(to_offset=mirrored_end)


async def test_a_partition_whose_copy_is_not_known_was_not_compared() -> None:
    """Such as one that the target does not make: there is nothing that could be equal."""
    world = world_with(partitions=1)
    world.target.refusal = "invalid_replication_factor"
    world.verifier = Agreeing()
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.REFUSED})
        service = MirrorAdminService("a-b")
        service.show(mirror)
        async with serving(service) as stub:
            (found,) = [one async for one in stub.VerifyMirror(mirror_pb2.VerifyMirrorRequest(), timeout=60)]
            assert (found.verdict, found.topic) == ("unknown", "orders")
            assert "invalid_replication_factor" in found.finding
            world.target.refusal = ""
            await eventually(world.is_equal)

            async def is_known_equal() -> bool:  # the target has it before the mirror knows that
                (found,) = [one async for one in stub.VerifyMirror(mirror_pb2.VerifyMirrorRequest(), timeout=60)]
                return (found.verdict, found.to_offset) == ("equal", 60)

            await eventually(is_known_equal)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await answered(stub, "VerifyMirror", mirror_pb2.VerifyMirrorRequest(topics=["("]))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
