"""The part of a link that one daemon carries: the whole link, or the slots that it owns if several
daemons share the link.

`mirror/translate/link_holder.py` has a third kind: a daemon that carries the whole link while it
holds the link's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from mirror.sharing.ownership import Ownership
from wire.protocol.ids import TopicPartition
from wire.rules.sync_reports import ALL_SLOTS

Worker = Callable[[], Coroutine[Any, Any, None]]
"""A task that the mirror starts, and starts again when it dies."""


class Share(Protocol):
    """One daemon's part of its link."""

    @property
    def daemon(self) -> str:
        """The name of the daemon for operators and for the other daemons of the link."""
        ...

    @property
    def slots(self) -> frozenset[int]:
        """The slots that the daemon may write now."""
        ...

    @property
    def outage(self) -> str:
        """The reason why the daemon has no part now; empty while it has one."""
        ...

    @property
    def waiting_for(self) -> str:
        """A sentence while another daemon carries a link that is not shared; empty otherwise."""
        ...

    @property
    def ownership(self) -> Ownership | None:
        """The ownership that is negotiated with other daemons; None if the link is not shared."""
        ...

    @property
    def workers(self) -> Mapping[str, Worker]:
        """The tasks that keep the part, by name."""
        ...

    def owns(self, key: TopicPartition) -> bool:
        """True if this daemon mirrors the partition."""
        ...


class WholeLink:
    """The share of a daemon that has its link alone."""

    slots = ALL_SLOTS
    outage = ""
    waiting_for = ""
    ownership = None

    def __init__(self, daemon: str) -> None:
        self.daemon = daemon
        self.workers: Mapping[str, Worker] = {}

    def owns(self, key: TopicPartition) -> bool:  # noqa: ARG002
        """True: no other daemon carries the link."""
        return True


class SharedLink:
    """The share of a daemon that is one of several; `keep` negotiates the ownership."""

    waiting_for = ""

    def __init__(self, daemon: str, ownership: Ownership, keep: Worker) -> None:
        self.daemon = daemon
        self.ownership = ownership
        self.workers: Mapping[str, Worker] = {"sharing": keep}

    @property
    def slots(self) -> frozenset[int]:
        """The slots owned now."""
        return self.ownership.slots

    @property
    def outage(self) -> str:
        """The reason why this daemon owns nothing; empty while its ownership is confirmed."""
        return self.ownership.outage

    def owns(self, key: TopicPartition) -> bool:
        """True if the partition's slot is owned now."""
        return self.ownership.owns(key)
