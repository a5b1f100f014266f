"""Decides which TLS handshake is next, and which one ends if there are too many. Pure.

Networks take turns, so a network that begins many handshakes delays its own. A network is an
address, or of IPv6 its first 64 bits (`runtime/security/client_networks.py`). When there are too
many handshakes, the network that has most of them loses one: its oldest that waits for its client,
as a half-open connection does. If all of them wait for this process, it loses the newest, so that
the others complete. A client that is alone in its network keeps its place as long as another
network has two.

Caller: wire/tls/handshakes.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Generic, TypeVar

EntryT = TypeVar("EntryT")


class HandshakeTurns(Generic[EntryT]):
    """The handshakes that are under way, from `add` to `discard`."""

    def __init__(self) -> None:
        self._networks: dict[EntryT, str] = {}
        """All handshakes, the oldest first."""
        self._counts: Counter[str] = Counter()
        self._ready: OrderedDict[str, OrderedDict[EntryT, None]] = OrderedDict()
        """Those with work to do, by network; the network whose turn is next first."""
        self._at_work: set[EntryT] = set()

    def __len__(self) -> int:
        return len(self._networks)

    def __contains__(self, entry: EntryT) -> bool:
        return entry in self._networks

    @property
    def all(self) -> tuple[EntryT, ...]:
        """All handshakes, the oldest first."""
        return tuple(self._networks)

    def add(self, entry: EntryT, network: str) -> None:
        """A handshake has begun; it waits for its client."""
        self._networks[entry] = network
        self._counts[network] += 1

    def discard(self, entry: EntryT) -> None:
        """A handshake is over."""
        network = self._networks.pop(entry, None)
        if network is None:
            return
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]
        self._at_work.discard(entry)
        self._forget_ready(entry, network)

    def ready(self, entry: EntryT) -> None:
        """The client has sent bytes, or can take some: the handshake waits for its turn."""
        self._ready.setdefault(self._networks[entry], OrderedDict())[entry] = None

    def next(self) -> EntryT | None:
        """The handshake to work on, until `waits_for_client` or `discard`; None if none is
        ready.
        """
        if not self._ready:
            return None
        network, entries = next(iter(self._ready.items()))
        entry = next(iter(entries))
        self._forget_ready(entry, network)
        if network in self._ready:
            self._ready.move_to_end(network)
        self._at_work.add(entry)
        return entry

    def waits_for_client(self, entry: EntryT) -> None:
        """The work on a handshake is done until its client goes on."""
        self._at_work.discard(entry)

    def surplus(self) -> EntryT:
        """The handshake that has to end because there are too many. At least one must be under
        way.
        """
        most = max(self._counts.values())
        # without a list of all: in a storm this runs for each connection, and the first ones match
        for entry, network in self._networks.items():
            if self._counts[network] == most and not self._has_work(entry):
                return entry
        return next(entry for entry, network in reversed(self._networks.items()) if self._counts[network] == most)

    def _has_work(self, entry: EntryT) -> bool:
        return entry in self._at_work or entry in self._ready.get(self._networks[entry], ())

    def _forget_ready(self, entry: EntryT, network: str) -> None:
        entries = self._ready.get(network)
        if entries is None:
            return
        entries.pop(entry, None)
        if not entries:
            del self._ready[network]
