"""Host and port pairs as configuration files write them (`host:port`, `[v6]:port`, comma-separated
lists).
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

ZOOKEEPER_PORT: Final = 2181
WILDCARD_HOSTS: Final = ("0.0.0.0", "::", "")  # noqa: S104


class HostPort(NamedTuple):
    """A network address; prints as `host:port`, with brackets around an IPv6 host."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_host_port(text: str, *, default_port: int | None = None) -> HostPort:
    """One address. ValueError names the wrong value and what would be accepted."""
    stripped = text.strip()
    host, separator, port_text = stripped.rpartition(":")
    if not separator or stripped.endswith("]"):
        if default_port is None:
            raise ValueError(f"{text!r} has no port; accepted: host:port")
        host, port_text = stripped, str(default_port)
    if not port_text.isdecimal() or not 0 <= int(port_text) <= 65535:
        raise ValueError(f"{text!r} has no valid port; accepted: host:port with a port from 0 to 65535")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ValueError(f"{text!r} has no host; accepted: host:port")
    return HostPort(host, int(port_text))


def parse_host_ports(text: str) -> tuple[HostPort, ...]:
    """A comma-separated list, empty items ignored. ValueError if no address is left."""
    addresses = tuple(parse_host_port(item) for item in text.split(",") if item.strip())
    if not addresses:
        raise ValueError(f"{text!r} names no address; accepted: host:port[,host:port...]")
    return addresses


def checked_zookeeper_connect(text: str) -> str:
    """The text, if it is a list of ZooKeeper's servers with an optional path; a server without a
    port has ZooKeeper's. ValueError names the wrong server.
    """
    servers, _, _ = text.partition("/")
    for server in servers.split(",") if text else ():
        parse_host_port(server, default_port=ZOOKEEPER_PORT)
    return text


def reachable_address(listener: HostPort, advertised: HostPort | None, bound_port: int) -> HostPort:
    """The address under which other processes reach a listener: the advertised one, else the bound
    one, with this machine's name for "every interface".
    """
    address = advertised or listener
    host = socket.gethostname() if address.host in WILDCARD_HOSTS else address.host
    return HostPort(host, address.port or bound_port)
