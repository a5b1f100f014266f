"""Limits the calls of a mirror to the link that its certificate or token names. Pure.

A mirror creates, grows, configures and deletes topics in the name of a link. The controller checks
that this link carries them; here the guard checks that the link is the mirror's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from wire.access.core.roles import Caller, Role

DAEMON_SEPARATOR: Final = "@"
"""Between the link and the rest of a mirror's name: `a-b@host1` and `a-b@host2` are two daemons of
link `a-b`.
"""
LINK_GROUP: Final = "link"
"""The group of `antipode.control.role.mirror.subjects` that matches the link in a subject."""
_HOW_TO: Final = (
    "name its certificate antipode://mirror/LINK or antipode://mirror/LINK@DAEMON, "
    "or give antipode.control.role.mirror.subjects a group (?P<link>...)"
)


def link_of_name(role: Role, name: str) -> str:
    """The link of a mirror with this name; empty for other roles."""
    return name.partition(DAEMON_SEPARATOR)[0] if role is Role.MIRROR else ""


def scope_refusal(caller: Caller, method: str, request: Any) -> str:
    """Why a mirror may not make this call of a method that its role may call; empty if it may."""
    if caller.role is not Role.MIRROR:
        return ""
    what = method.rpartition("/")[2]
    if not caller.link:
        return f"mirror {caller.name} may not call {what}, because its certificate names no link: {_HOW_TO}"
    for link in _claims(request):
        # A request without a link is refused too: the controller checks only the claim of a link.
        if link != caller.link:
            named = f"in the name of link '{link}'" if link else "without naming a link"
            return f"mirror {caller.name} acts for link '{caller.link}' and may not call {what} {named}"
    return ""


def _claims(request: Any) -> Iterator[str]:
    """The links in whose name the request changes topics."""
    for field in ("topics", "changes"):
        for entry in getattr(request, field, ()):
            if hasattr(entry, "link"):
                yield entry.link
    if hasattr(request, "link"):
        yield request.link


def narrow(caller: Caller, reply: Any) -> None:
    """Remove what a mirror need not know from the reply: other links, and the topics of a view,
    which a mirror reads from the brokers under its own rights there.
    """
    if caller.role is not Role.MIRROR:
        return
    if hasattr(reply, "links"):
        _keep_own(reply.links, caller, lambda status: status.record.name)
    view = getattr(reply, "view", None)
    if view is not None:
        del view.topics[:]
        _keep_own(view.links, caller, lambda record: record.name)


def _keep_own(entries: Any, caller: Caller, name: Any) -> None:
    kept = [entry for entry in entries if name(entry) == caller.link]
    del entries[:]
    entries.extend(kept)
