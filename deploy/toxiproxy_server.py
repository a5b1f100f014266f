"""Runs a toxiproxy server as a child process. Its clients configure the proxies over its API."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path

from deploy import parts
from deploy.ports import LOOPBACK
from runtime.children import Child

PROBE_TIMEOUT_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class ToxiproxyServer:
    """A server on loopback; `port` is that of its API."""

    name: str
    directory: Path
    port: int

    def child(self, *, log: Path | None = None) -> Child:
        """The process, not started. Raises OperationalFailure without a server of the right
        version.
        """
        command = [str(parts.toxiproxy()), "-host", LOOPBACK, "-port", str(self.port)]
        return Child(
            name=self.name,
            command=command,
            directory=self.directory,
            log=log or self.directory / "toxiproxy.log",
            # the default level, trace, logs a line for each connection
            environment={"LOG_LEVEL": "info"},
        )

    def is_serving(self) -> bool:
        """True if its API answers with the right version now; waits at most `PROBE_TIMEOUT_S`."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/version")
            return bool(json.loads(connection.getresponse().read())["version"] == parts.TOXIPROXY_VERSION)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return False
        finally:
            connection.close()
