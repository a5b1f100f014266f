"""A request's header and where it came from, as a handler sees them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from runtime.security.client_networks import unmapped
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.rules.principals import ANONYMOUS, Principal

FORWARDED_CLIENT_ID: Final = "antipode-forwarded"
"""The client id of requests that a broker forwards for its clients. That broker has authorized the
client.
"""


class RequestContext(Struct, frozen=True, kw_only=True):
    """The header of one request, and its origin."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener: str
    client_address: str
    client_software: str = ""
    principal: Principal = ANONYMOUS
    is_by_token: bool = False
    """True if the client has logged in by a delegation token."""

    @property
    def client_host(self) -> str:
        """The address without the port, as ACLs name it: IPv4 in its own form also on a socket of
        both families.
        """
        return unmapped(self.client_address.rpartition(":")[0])

    @property
    def is_forwarded(self) -> bool:
        """True for a request that another broker forwarded; it is not forwarded again."""
        return self.client_id == FORWARDED_CLIENT_ID

    @property
    def is_own_tool(self) -> bool:
        """True for Antipode's own mirrors and tools, which use this site's own state."""
        return self.client_software == CLIENT_SOFTWARE_NAME
