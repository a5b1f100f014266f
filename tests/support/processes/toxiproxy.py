"""A real toxiproxy for tests: proxies in front of any address, and the faults they can have.

Speaks the server's HTTP API itself because the Python client keeps the server's address in a class
variable, and a test may have two servers: its own and that of `antipode up` (`Toxiproxy(port)`
works for both).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.processes.ports import LOOPBACK, free_port

REQUEST_TIMEOUT_S = 60
"""Removing many faults at the same moment, or one whose stream is full, takes its time."""


class Toxiproxy:
    """The API of one server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def create(self, name: str, upstream: str, *, listen_port: int | None = None) -> Proxy:
        """A proxy on loopback in front of `upstream` (host:port), on a free port unless one is
        given.
        """
        listen = f"{LOOPBACK}:{listen_port if listen_port is not None else free_port()}"
        created = self.request("POST", "/proxies", {"name": name, "listen": listen, "upstream": upstream})
        return Proxy(self, name, str(created["listen"]))

    def proxies(self) -> dict[str, Proxy]:
        """Every proxy there is, by name."""
        found = self.request("GET", "/proxies")
        return {name: Proxy(self, name, str(described["listen"])) for name, described in found.items()}

    def heal(self) -> None:
        """Remove all toxics and enable all proxies."""
        self.request("POST", "/reset")

    def delete_all(self) -> None:
        """Remove all proxies; their connections end."""
        for proxy in self.proxies().values():
            proxy.delete()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One call of the API. Raises AssertionError with the server's message if it refuses."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=REQUEST_TIMEOUT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        assert response.status < 300, f"toxiproxy refused {method} {path} {body}: {response.status} {text}"
        return json.loads(text) if text else None


class Proxy:
    """One proxy: `address` is what clients are given instead of the upstream."""

    def __init__(self, server: Toxiproxy, name: str, address: str) -> None:
        self._server = server
        self.name = name
        self.address = address

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.address.rpartition(":")[2])

    def cut(self) -> None:
        """End all connections and refuse new ones until `restore`."""
        self._server.request("POST", f"/proxies/{self.name}", {"enabled": False})

    def restore(self) -> None:
        """Take connections again; toxics stay."""
        self._server.request("POST", f"/proxies/{self.name}", {"enabled": True})

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Cut for as long as the block runs."""
        self.cut()
        try:
            yield
        finally:
            self.restore()

    def add(self, toxic: str, *, stream: str = "downstream", toxicity: float = 1.0, **attributes: int) -> str:
        """Add a toxic (latency, bandwidth, slow_close, timeout, reset_peer, slicer, limit_data).
        Returns its name, for `remove`.

        Upstream is towards the server, downstream from it. `add("timeout", timeout=0)` swallows
        everything: a black hole.
        """
        description = {"type": toxic, "stream": stream, "toxicity": toxicity, "attributes": attributes}
        return str(self._server.request("POST", f"/proxies/{self.name}/toxics", description)["name"])

    def change(self, toxic_name: str, **attributes: int) -> None:
        """Give a toxic that is there other attributes."""
        self._server.request("POST", f"/proxies/{self.name}/toxics/{toxic_name}", {"attributes": attributes})

    def remove(self, toxic_name: str) -> None:
        """Remove one toxic."""
        self._server.request("DELETE", f"/proxies/{self.name}/toxics/{toxic_name}")

    def delete(self) -> None:
        """Remove the proxy; its connections end."""
        self._server.request("DELETE", f"/proxies/{self.name}")
