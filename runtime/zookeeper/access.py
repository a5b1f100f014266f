"""The identity with which a process opens ZooKeeper sessions, and the ACLs of the znodes that it
creates.

A process has one identity at ZooKeeper; `access_zookeeper_as` sets it before any session begins.
ACLs are Kafka's: the creator may do everything, and everyone may read what is not a secret.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import ACL, make_acl

from runtime.zookeeper.handler import PollingHandler

SENSITIVE: Final = ("/config/users", "/delegation_token")
"""Paths whose data others must not read, as in Kafka (`ZkData.SensitiveRootPaths`)."""
SERVICE_PRINCIPAL: Final = "zk-sasl-md5"
"""The name of ZooKeeper's servers in DIGEST-MD5."""


class TlsHandler(PollingHandler):
    """kazoo's handler with TLS connections by our own context: kazoo's own TLS also trusts the
    system's authorities, and does not verify host names.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """A connection after its handshake; OSError."""
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return self._context.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """A user of ZooKeeper's SASL with DIGEST-MD5 (no name: none), and the context of TLS (None:
    plaintext).
    """

    username: str = ""
    password: str = field(default="", repr=False)
    sets_acls: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def client_options(self) -> dict[str, Any]:
        """The options for a kazoo client; each client has its own."""
        handler = PollingHandler() if self.tls is None else TlsHandler(self.tls)
        return {"handler": handler, **self._login_options()}

    def _login_options(self) -> dict[str, Any]:
        if not self.username:
            return {}
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
    """Set this process's identity; None: no login, and znodes open to all."""
    _Process.access = access


def client_options() -> dict[str, Any]:
    """The options for the next kazoo client of this process."""
    return {"handler": PollingHandler()} if _Process.access is None else _Process.access.client_options()


def acl_of(path: str) -> list[ACL] | None:
    """The ACL of a znode that this process creates; None: open to all."""
    access = _Process.access
    return None if access is None or not access.sets_acls else access.acl(path)
