"""The gRPC server of a process, with health and reflection; packages add their services to it.

`cli` creates the server, passes `.server` to each part, and starts it. A process has one identity
on the control plane: `protect_control_plane` sets it for the server and for every channel that is
opened later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from msgspec import Struct

from runtime.addresses import HostPort
from runtime.process import OperationalFailure

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""A full image of 10,000 partitions is about 2 MB; the bound leaves room for growth and refuses
malformed lengths.
"""

CONNECT_WITHIN_MS: Final = 10_000
"""How long an attempt to connect may take, TLS and HTTP/2 included: several round trips, which
take seconds on a bad line between sites or at a busy peer.
"""

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Protection(Struct, frozen=True, kw_only=True):
    """The protection of a process's control plane (`wire/access` makes it); the default is
    plaintext.

    Credentials are read again for each listener and channel, so that replaced files take effect.
    """

    server: Callable[[], grpc.ServerCredentials] | None = None
    channel: Callable[[], grpc.ChannelCredentials] | None = None
    interceptors: Sequence[grpc.aio.ServerInterceptor] = ()


class _Process:
    """The one protection of this process."""

    protection = Protection()


def protect_control_plane(protection: Protection) -> None:
    """Set this process's identity. Call this before any server is created or channel is opened."""
    _Process.protection = protection


def is_control_plane_protected() -> bool:
    """True if channels of this process are encrypted."""
    return _Process.protection.channel is not None


class GrpcServer:
    """A `grpc.aio` server with health and reflection; create it inside the running loop."""

    def __init__(self, host: str, port: int) -> None:
        self._address = HostPort(host, port)
        self._protection = _Process.protection
        self.server: grpc.aio.Server = grpc.aio.server(
            # without SO_REUSEPORT a second process on the same address fails instead of sharing it
            # silently
            options=[*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)],
            interceptors=self._protection.interceptors,
        )
        self._health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        self._service_names: list[str] = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]

    def add_service_name(self, name: str) -> None:
        """Name a service (`antipode.control.BrokerControl`) for reflection and health; before
        `start`.
        """
        self._service_names.append(name)

    async def start(self, *, is_ready: bool = True) -> int:
        """Bind and serve; returns the port. OperationalFailure when the address is taken.

        With `is_ready` False the health of the whole process (the service "") stays NOT_SERVING
        until `set_serving("")`.
        """
        reflection.enable_server_reflection((*self._service_names, reflection.SERVICE_NAME), self.server)
        try:
            port = self._bind(str(self._address))
        except RuntimeError as error:
            raise OperationalFailure(
                f"gRPC address {self._address} cannot be bound: is another process using it?"
            ) from error
        await self.server.start()
        for name in self._service_names:
            await self.set_serving(name, is_serving=True)
        await self.set_serving("", is_serving=is_ready)
        return port

    def _bind(self, address: str) -> int:
        credentials = self._protection.server
        if credentials is None:
            return self.server.add_insecure_port(address)
        return self.server.add_secure_port(address, credentials())

    async def set_serving(self, name: str, *, is_serving: bool) -> None:
        """Change the health of one service."""
        status = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set(name, status)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Report NOT_SERVING, let calls finish for `grace_s`, then close."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


class Dial(Protocol):
    """Opens a gRPC channel: `open_channel`, or a simulated one."""

    def __call__(self, address: str, *, connect_within_ms: int = ...) -> grpc.aio.Channel:
        """A channel to the address; an attempt to connect takes at most `connect_within_ms`."""
        ...


def open_channel(address: str, *, connect_within_ms: int = CONNECT_WITHIN_MS) -> grpc.aio.Channel:
    """A channel with this process's identity, the limits of `CHANNEL_OPTIONS`, no proxy and short
    reconnect delays.
    """
    # gRPC names the limit of an attempt as a backoff; the delay between two attempts begins at the
    # initial backoff all the same.
    options = [*CHANNEL_OPTIONS, ("grpc.min_reconnect_backoff_ms", connect_within_ms)]
    credentials = _Process.protection.channel
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials(), options=options)
