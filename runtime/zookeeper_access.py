"""The identity with which a process opens ZooKeeper sessions, and the ACLs of the znodes that it
creates.

A process has one identity at ZooKeeper; `access_zookeeper_as` sets it before any session begins.
ACLs are Kafka's: the creator may do everything, and everyone may read what is not a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import ACL, make_acl

SENSITIVE: Final = ("/config/users", "/delegation_token")
"""Paths whose data others must not read, as in Kafka (`ZkData.SensitiveRootPaths`)."""
SERVICE_PRINCIPAL: Final = "zk-sasl-md5"
"""The name of ZooKeeper's servers in DIGEST-MD5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """A user of ZooKeeper's SASL with DIGEST-MD5."""

    username: str
    password: str = field(repr=False)
    sets_acls: bool = False

    def client_options(self) -> dict[str, Any]:
        """The options for a kazoo client."""
        sasl = {
            "mechanism": "DIGEST-MD5",
            "username": self.username,
            "password": self.password,
            "service": "zookeeper",
            "principal": SERVICE_PRINCIPAL,
        }
        return {"sasl_options": sasl, **({"default_acl": self.acl("/")} if self.sets_acls else {})}

    def acl(self, path: str) -> list[ACL]:
        """The ACL of a znode that is created at the path."""
        creator = make_acl("sasl", self.username, all=True)
        if path.startswith(SENSITIVE):
            return [creator]
        return [creator, make_acl("world", "anyone", read=True)]


class _Process:
    """The one identity of this process."""

    access: ZooKeeperAccess | None = None


def access_zookeeper_as(access: ZooKeeperAccess | None) -> None:
    """Set this process's identity; None: none, and open ACLs."""
    _Process.access = access


def client_options() -> dict[str, Any]:
    """The options for the next kazoo client of this process."""
    return {} if _Process.access is None else _Process.access.client_options()


def acl_of(path: str) -> list[ACL] | None:
    """The ACL of a znode that this process creates; None: open to all."""
    access = _Process.access
    return None if access is None or not access.sets_acls else access.acl(path)
