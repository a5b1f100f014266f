"""The interface of a client in the security matrix: with given credentials it sends and reads a few
records, commits a transaction and creates a topic. A call raises when it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.compatibility.security.credentials import Credentials

WITHIN_S = 30
REFUSED_WITHIN_S = 10
"""The bound of a client that does not report a refused login, but tries again and again."""
GROUP = "reader"


class SecuredClient(Protocol):
    """A client in a test's hands."""

    name: str

    def version(self) -> str:
        """Name and version of the library."""

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""

    def produce(self, servers: str, topic: str, values: Sequence[bytes], credentials: Credentials) -> None:
        """Send these to partition 0, and wait until all are acknowledged."""

    def consume(
        self, servers: str, topic: str, count: int, credentials: Credentials, group: str = GROUP
    ) -> list[bytes]:
        """The first values of partition 0, as a member of the group."""

    def commit(
        self, servers: str, topic: str, identity: str, values: Sequence[bytes], credentials: Credentials
    ) -> None:
        """Send these to partition 0 in one transaction of this transactional id."""

    def make_topic(self, servers: str, topic: str, credentials: Credentials) -> None:
        """With one partition."""
