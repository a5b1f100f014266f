"""gRPC channels by address, opened once and shared, and the meaning of an unanswered call."""

from __future__ import annotations

import grpc

from runtime.grpc_server import Dial, is_control_plane_protected, open_channel
from wire.control.broker_pb2_grpc import BrokerControlStub
from wire.control.mirror_pb2_grpc import MirrorAdminStub
from wire.control.site_pb2_grpc import SiteAgentStub

UNANSWERED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
"""The other end may or may not have executed the call: repeat it, there or at another agent."""

INTERRUPTED_KEY = "interrupted"
"""Trailing metadata of an agent that is there and cannot answer at the moment, because its
ZooKeeper session is interrupted or because it has just started.
"""

CLOSED_AT_ONCE = "Socket closed"
"""The text that gRPC reports, among others, when a TLS listener receives plaintext, or a
certificate that it does not accept.
"""
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_HINTS = {
    (CLOSED_AT_ONCE, False): "if its control plane is protected, this process needs --command-config, "
    "or antipode.control.* in its file",
    (CLOSED_AT_ONCE, True): "if it runs, it does not accept this process's certificate: another authority, or expired; "
    "antipode.control.ssl.keystore.location",
    (UNTRUSTED, True): "this process does not accept its certificate: another authority, another host, or expired; "
    "antipode.control.ssl.truststore.location",
}
"""What a person can do, by a part of gRPC's text, and whether this process uses certificates."""


class Channels:
    """Owns every channel it opens; `close` ends them all."""

    def __init__(self, dial: Dial = open_channel) -> None:
        self.dial = dial
        self._by_address: dict[str, grpc.aio.Channel] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        """The channel to `address` (host:port)."""
        channel = self._by_address.get(address)
        if channel is None:
            channel = self._by_address[address] = self.dial(address)
        return channel

    def broker_control(self, address: str) -> BrokerControlStub:
        """A broker's control service."""
        return BrokerControlStub(self.to(address))  # type: ignore[no-untyped-call]

    def site_agent(self, address: str) -> SiteAgentStub:
        """A site agent."""
        return SiteAgentStub(self.to(address))  # type: ignore[no-untyped-call]

    def mirror_admin(self, address: str) -> MirrorAdminStub:
        """A mirror daemon."""
        return MirrorAdminStub(self.to(address))  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Close all channels; calls in flight fail as cancelled."""
        channels, self._by_address = list(self._by_address.values()), {}
        for channel in channels:
            await channel.close(None)


def is_interrupted(error: grpc.aio.AioRpcError) -> bool:
    """True if the agent itself reports that it cannot answer at the moment."""
    return any(key == INTERRUPTED_KEY for key, _ in error.trailing_metadata() or ())


def problem_of(error: grpc.aio.AioRpcError) -> str:
    """The error for a person: its code and the other end's message."""
    details, is_protected = error.details() or "no details", is_control_plane_protected()
    hints = [f" ({hint})" for (text, needs), hint in _HINTS.items() if text in details and needs is is_protected]
    return f"{error.code().name}: {details}{''.join(hints)}"
