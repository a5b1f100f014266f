"""Toxiproxy between each node of a site and each member of its ZooKeeper ensemble, to part them
where no namespaces can be made.

A part is a black hole in one direction, or in both; connections that stood hang, as in a network of
namespaces, and end when it is mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.support.processes.toxiproxy import Proxy, Toxiproxy
from tests.support.processes.zookeeper import ZooKeeperEnsemble


class ZooKeeperProxies:
    """A proxy for each pair of a node and a member."""

    def __init__(
        self, toxiproxy: Toxiproxy, ensemble: ZooKeeperEnsemble, *, nodes: Sequence[str], members: Sequence[str]
    ) -> None:
        self._proxies: Mapping[tuple[str, str], Proxy] = {
            (node, member): toxiproxy.create(f"{node}-{member}", process.connect)
            for node in nodes
            for member, process in zip(members, ensemble.members, strict=True)
        }
        self._toxics: dict[tuple[str, str], tuple[Proxy, str]] = {}

    def connect(self, node: str) -> str:
        """The connect string that a node is given."""
        return ",".join(proxy.address for (owner, _), proxy in self._proxies.items() if owner == node)

    def cut(self, cuts: Iterable[tuple[str, str]]) -> None:
        """From now on nothing gets from the first of each pair to the second; one is a node, the
        other a member.
        """
        for source, target in cuts:
            if (source, target) not in self._toxics:
                is_upstream = (source, target) in self._proxies
                proxy = self._proxies[(source, target) if is_upstream else (target, source)]
                toxic = proxy.add("timeout", stream="upstream" if is_upstream else "downstream", timeout=0)
                self._toxics[source, target] = proxy, toxic

    def mend(self, cuts: Iterable[tuple[str, str]]) -> None:
        """Reconnect a disconnected pair; does nothing for a connected one."""
        for pair in cuts:
            if pair in self._toxics:
                proxy, toxic = self._toxics.pop(pair)
                proxy.remove(toxic)
