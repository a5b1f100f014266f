"""Requests to a mirror process: its status and the wait for a state, comparisons, resets, and its
page of metrics.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from runtime.grpc_server import CHANNEL_OPTIONS
from tests.support.eventually import eventually
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import RunningProcess
from wire.control import mirror_pb2, mirror_pb2_grpc

DESCRIBED_WITHIN_S = 120

KEEPS_UP_RECORDS = 100
"""The records of a running load that are in flight at any moment."""


async def describe_mirror(mirror: RunningProcess) -> mirror_pb2.DescribeMirrorReply:
    """The status that a mirror process reports. Raises AssertionError while it does not answer."""
    request = mirror_pb2.DescribeMirrorRequest()
    reply: mirror_pb2.DescribeMirrorReply = await _ask_mirror(
        mirror, lambda stub: stub.DescribeMirror(request, timeout=DESCRIBED_WITHIN_S)
    )
    return reply


async def wait_for_state(mirror: RunningProcess, state: str, reason: str = "") -> str:
    """Wait until all partitions are in the state, and the reason of each contains the text. Returns
    the reason of the first.
    """

    async def is_so() -> str:
        partitions = (await describe_mirror(mirror)).partitions
        assert partitions
        assert {partition.state for partition in partitions} == {state}, [(p.state, p.reason) for p in partitions]
        assert all(reason in partition.reason for partition in partitions), [p.reason for p in partitions]
        return str(partitions[0].reason)

    return await eventually(is_so)


async def keeps_up(mirror: RunningProcess, within_ms: float) -> None:
    """Wait until a mirror has delivered nearly all records: records that are left over from before
    would continue to arrive.
    """

    async def holds_little() -> bool:
        reply = await describe_mirror(mirror)
        lags = [partition.lag_records for partition in reply.partitions]
        assert lags, "it mirrors nothing yet"
        assert all(0 <= lag <= KEEPS_UP_RECORDS for lag in lags), lags
        return True

    await eventually(holds_little, within_ms)


async def verify_mirror(mirror: RunningProcess, *topics: str) -> list[mirror_pb2.VerifiedPartition]:
    """The result of a comparison of both logs by a mirror process. Raises AssertionError if it does
    not answer.
    """
    request = mirror_pb2.VerifyMirrorRequest(topics=topics)

    async def ask(stub: Any) -> list[mirror_pb2.VerifiedPartition]:
        return [one async for one in stub.VerifyMirror(request, timeout=60)]

    found: list[mirror_pb2.VerifiedPartition] = await _ask_mirror(mirror, ask)
    return found


async def reset_topics(mirror: RunningProcess, *topics: str) -> mirror_pb2.ResetTopicsReply:
    """Let a mirror process remove copies. Raises AssertionError if it does not answer."""
    request = mirror_pb2.ResetTopicsRequest(topics=topics)
    reply: mirror_pb2.ResetTopicsReply = await _ask_mirror(mirror, lambda stub: stub.ResetTopics(request, timeout=60))
    return reply


async def _ask_mirror(mirror: RunningProcess, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async with own_channel(mirror_ports(mirror)["grpc"]) as channel:
        stub = mirror_pb2_grpc.MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
        try:
            return await ask(stub)
        except grpc.aio.AioRpcError as error:
            raise AssertionError(str(error)) from error


def own_channel(port: int) -> grpc.aio.Channel:
    """A channel with a connection of its own: one that another channel to the same address just
    closes may end the call of the next.
    """
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(f"{LOOPBACK}:{port}", options=options)


def mirror_ports(mirror: RunningProcess) -> dict[str, int]:
    """Its ports, from its last start."""
    found = re.findall(r'^\{"ready".*$', mirror.log_text(), re.MULTILINE)
    assert found, mirror.log_text()[-2000:]
    ports: dict[str, int] = json.loads(found[-1])
    return ports


def scrape(mirror: RunningProcess) -> str:
    """The metrics page."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{mirror_ports(mirror)['ready']}/metrics", timeout=30) as page:
        return str(page.read().decode())
