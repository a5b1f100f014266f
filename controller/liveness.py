"""Is anything still listening there? A connection that breaks and is refused when it is made again says no, within milliseconds.

A killed process closes its connections at once, long before its ZooKeeper session ends. Only a refusal counts, and only when it is
repeated: silence, a reset or a timeout may be the network, and is left to the session. A refusal may still be wrong (a restart,
a firewall that rejects); epochs make that harmless, and who is alive after all is taken back.
"""

from __future__ import annotations

import asyncio

import grpc

from runtime.addresses import HostPort, parse_host_port
from runtime.grpc_server import open_channel
from wire.control.broker_pb2 import IdentifyReply, IdentifyRequest
from wire.control.broker_pb2_grpc import BrokerControlStub

CONNECT_TIMEOUT_S = 1.0
REFUSALS_NEEDED = 2
CONFIRMATION_PAUSE_S = 0.005
UNKNOWN_PAUSE_S = 0.2
READ_BYTES = 4096


async def until_refused(address: str) -> None:
    """Return when nothing listens at `host:port` any more; stays for ever when the address cannot be understood."""
    try:
        place = parse_host_port(address)
    except ValueError:
        await asyncio.Event().wait()
        return
    refusals = 0
    while refusals < REFUSALS_NEEDED:
        try:
            await _stay_connected(place)
            refusals = 0
        except ConnectionRefusedError:
            refusals += 1
            await asyncio.sleep(CONFIRMATION_PAUSE_S)
        except (OSError, TimeoutError):
            refusals = 0
            await asyncio.sleep(UNKNOWN_PAUSE_S)


async def _stay_connected(place: HostPort) -> None:
    """Connect and read nothing until the other side ends the connection; it is never written to."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*place)
    try:
        while await reader.read(READ_BYTES):
            pass
    except ConnectionResetError:
        return  # as good as an end: whether something listens is found out by connecting again
    finally:
        writer.close()


async def until_identified(address: str, broker_epoch: int) -> None:
    """Return when the process at `address` says that it is the broker registered under this epoch."""
    channel = open_channel(address)
    stub = BrokerControlStub(channel)  # type: ignore[no-untyped-call]
    try:
        while True:
            try:
                reply: IdentifyReply = await stub.Identify(IdentifyRequest(), timeout=CONNECT_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(UNKNOWN_PAUSE_S)
                continue
            if reply.broker_epoch == broker_epoch:
                return
            await asyncio.sleep(UNKNOWN_PAUSE_S)
    finally:
        await channel.close(None)
