"""The principal of an authenticated connection, as which its requests are authorized. Pure. Source:
KIP-189 (`KafkaPrincipal`), KIP-11.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """One client's identity; as text `User:alice`, the form of ACLs and super users."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The client of a listener without authentication."""
WILDCARD_PRINCIPAL: Final = Principal(USER, "*")
"""Every principal, as an ACL names it."""


def parse_principal(text: str) -> Principal:
    """The principal that a text of the form `Type:name` names; a name may contain colons.
    ValueError names the text and the form.
    """
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not a principal: a principal is written as {USER}:name")
    return Principal(kind, name)
