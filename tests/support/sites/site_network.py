"""A network of namespaces for a site's processes, in which any of them can be disconnected from any
other, in one direction or both.

Each place is a namespace with one address on a bridge; the tests' own process has an address there
too. An interruption is silent, like that of a pulled cable: packets from one place to another go to
a hardware address that no process has, and connections simply hang. That needs neither netem nor a
packet filter, only root and `ip`; without them `network_is_possible` returns False, and everything
runs on loopback.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.processes.ports import LOOPBACK

UNUSED_ADDRESS = "02:00:00:00:00:01"
"""A hardware address that no place has."""
OUTSIDE = "outside"
"""The tests' own process, with clients and observers."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process: the address that it listens on, and the beginning of its command that
    puts it there.
    """

    host: str = LOOPBACK
    prefix: Sequence[str] = ()


HERE = Place()


class SiteNetwork:
    """Places that can be disconnected from each other."""

    def __init__(self, names: Iterable[str]) -> None:
        self._id = f"an{os.getpid():x}"
        self._subnet = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
        self.names = tuple(names)
        self._hosts = {name: f"{self._subnet}.{number}" for number, name in enumerate(self.names, start=1)}
        self._hosts[OUTSIDE] = f"{self._subnet}.254"
        self._hub = f"{self._id}-hub"
        self._cuts: set[tuple[str, str]] = set()
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names, start=1):
            namespace = self._namespace(name)
            _ip("netns", "add", namespace)
            _ip(
                *("link", "add", f"p{number}", "netns", self._hub),
                *("type", "veth", "peer", "name", "eth0", "netns", namespace),
            )
            _ip("-n", namespace, "link", "set", "lo", "up")
            self._connect(("-n", namespace), "eth0", self._hosts[name], f"p{number}")
        _ip("link", "add", "p0", "netns", self._hub, "type", "veth", "peer", "name", self._id)
        self._connect((), self._id, self._hosts[OUTSIDE], "p0")

    def _connect(self, where: tuple[str, ...], device: str, host: str, port: str) -> None:
        _ip(*where, "addr", "add", f"{host}/24", "dev", device)
        _ip(*where, "link", "set", device, "up")
        _ip("-n", self._hub, "link", "set", port, "master", "bridge")
        _ip("-n", self._hub, "link", "set", port, "up")

    def _namespace(self, name: str) -> str:
        return f"{self._id}-{name}"

    def place(self, name: str) -> Place:
        """The place of the process with this name."""
        return Place(self._hosts[name], ("ip", "netns", "exec", self._namespace(name)))

    def cut(self, cuts: Iterable[tuple[str, str]]) -> None:
        """From now on nothing gets from the first place of each pair to the second."""
        for source, target in cuts:
            self._cuts.add((source, target))
            where, device = self._interface(source)
            _ip(
                *where,
                "neigh",
                "replace",
                self._hosts[target],
                "lladdr",
                UNUSED_ADDRESS,
                "dev",
                device,
                "nud",
                "permanent",
            )

    def mend(self, cuts: Iterable[tuple[str, str]]) -> None:
        """Reconnect a disconnected pair; does nothing for a connected one."""
        for source, target in cuts:
            if (source, target) in self._cuts:
                self._cuts.remove((source, target))
                where, device = self._interface(source)
                _ip(*where, "neigh", "del", self._hosts[target], "dev", device)

    def _interface(self, name: str) -> tuple[tuple[str, ...], str]:
        return ((), self._id) if name == OUTSIDE else (("-n", self._namespace(name)), "eth0")

    def close(self) -> None:
        """Take all namespaces away; interfaces go with them."""
        for namespace in (self._hub, *map(self._namespace, self.names)):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    ended = subprocess.run(["ip", *arguments], capture_output=True, check=False)
    assert ended.returncode == 0, f"ip {' '.join(arguments)}: {ended.stderr.decode(errors='replace')}"


def network_is_possible() -> bool:
    """True if this process may create namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = f"an{os.getpid():x}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return made


@contextmanager
def site_network(names: Iterable[str]) -> Iterator[SiteNetwork | None]:
    """A network while the block lasts; None where none can be made."""
    if not network_is_possible():
        yield None
        return
    network = SiteNetwork(names)
    try:
        yield network
    finally:
        network.close()
