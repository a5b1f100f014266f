"""Values of a broker's properties as text: listeners, addresses, lists and names."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator

from runtime.addresses import HostPort, parse_host_port
from runtime.configuration import Settings
from wire.rules.principals import parse_principal

AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
    "antipode.AclAuthorizer",
)
"""Kafka's names of authorizers, now and before, and ours: one authorizer."""


def parsed_authorizer(name: str) -> str:
    """The name of an authorizer; empty for none."""
    if name and name not in AUTHORIZERS:
        raise ValueError("this authorizer does not exist")
    return name


def parsed_principals(value: object) -> object:
    """`User:name[;User:name...]` as names of principals."""
    if not isinstance(value, str):
        return value
    names = [name.strip() for name in value.split(";") if name.strip()]
    return tuple(str(parse_principal(name)) for name in names)


def parsed_mirror_principals(value: object) -> object:
    """`LINK=User:name[;LINK=User:name...]` as links by principal."""
    if not isinstance(value, str):
        return value
    links: dict[str, set[str]] = {}
    for entry in filter(None, (part.strip() for part in value.split(";"))):
        # names of links have no equals sign, those of principals may: User:CN=mirror
        link, separator, principal = entry.partition("=")
        if not separator or not link.strip():
            raise ValueError(f"{entry!r} is not LINK=User:name")
        links.setdefault(str(parse_principal(principal.strip())), set()).add(link.strip())
    return {principal: frozenset(found) for principal, found in links.items()}


class Listener(Settings):
    """One `NAME://host:port`."""

    name: str
    address: HostPort


def _split_listener(text: str, *, key: str) -> Listener:
    name, separator, rest = text.strip().partition("://")
    if not separator or not name:
        raise ValueError(f"{key} entry {text!r} is not NAME://host:port")
    if rest.startswith(":"):
        rest = "0.0.0.0" + rest  # noqa: S104  Kafka's meaning of an empty host
    return Listener(name=name.upper(), address=parse_host_port(rest))


def _listeners(value: object) -> object:
    if not isinstance(value, str):
        return value
    listeners = tuple(_split_listener(item, key="listeners") for item in value.split(",") if item.strip())
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ValueError("a listener name is used twice")
    return listeners


def parsed_protocol_map(value: object) -> object:
    """`NAME:PROTOCOL[,NAME:PROTOCOL...]` as protocols by listener."""
    if not isinstance(value, str):
        return value
    pairs = (item.split(":", 1) for item in value.split(",") if item.strip())
    protocols: dict[str, str] = {}
    for pair in pairs:
        if len(pair) != 2:
            raise ValueError(f"{':'.join(pair)!r} is not NAME:PROTOCOL")
        protocols[pair[0].strip().upper()] = pair[1].strip().upper()
    return protocols


def _addresses(value: object) -> object:
    return parse_host_port(value) if isinstance(value, str) else value


def parsed_paths(value: object) -> object:
    """Paths, separated by commas."""
    if not isinstance(value, str):
        return value
    return tuple(item.strip() for item in value.split(",") if item.strip())


def parsed_counts(value: object) -> object:
    """`host:count[,host:count...]` as counts by host."""
    if not isinstance(value, str):
        return value
    counts: dict[str, int] = {}
    for item in value.split(","):
        host, separator, count = item.strip().rpartition(":")
        if not item.strip():
            continue
        if not separator or not host or not count.isdecimal():
            raise ValueError(f"{item.strip()!r} is not host:count")
        counts[host] = int(count)
    return counts


Listeners = Annotated[tuple[Listener, ...], BeforeValidator(_listeners)]


Address = Annotated[HostPort, BeforeValidator(_addresses)]
