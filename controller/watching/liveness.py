"""Check whether the process at an address is a certain broker. Used for brokers presumed dead."""

from __future__ import annotations

import asyncio

import grpc

from runtime.grpc_server import Dial
from wire.control.broker_pb2 import IdentifyReply, IdentifyRequest
from wire.control.broker_pb2_grpc import BrokerControlStub

ANSWER_TIMEOUT_S = 1.0
PAUSE_S = 0.2


async def until_identified(address: str, broker_epoch: int, *, dial: Dial) -> None:
    """Return when the process at `address` reports that it is the broker registered with this
    epoch.
    """
    channel = dial(address)
    stub = BrokerControlStub(channel)  # type: ignore[no-untyped-call]
    try:
        while True:
            try:
                reply: IdentifyReply = await stub.Identify(IdentifyRequest(), timeout=ANSWER_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(PAUSE_S)
                continue
            # another process may use the address meanwhile, so the answer must have this
            # registration's epoch
            if reply.broker_epoch == broker_epoch:
                return
            await asyncio.sleep(PAUSE_S)
    finally:
        await channel.close(None)
