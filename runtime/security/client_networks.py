"""A client's address, or the part of it, by which bounds of addresses count. Pure.

Callers: wire/identity/core/failed_logins.py, wire/tls/handshakes.py,
broker/network/connection_server.py, broker/metadata/request_context.py.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_IPV6_NETWORK_BITS: Final = 64


def unmapped(address: str) -> str:
    """The address as limits and ACLs name it: of IPv4 in its own form, also if a socket of both
    families shows it as a mapped one.
    """
    return address.removeprefix("::ffff:") if "." in address else address


def network_of(address: str) -> str:
    """The part of a client's address that one host has as its own: all of it, or of IPv6 the first
    64 bits. Mapped addresses are those of IPv4.
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_NETWORK_BITS), strict=False).network_address)
