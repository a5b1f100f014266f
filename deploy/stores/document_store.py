"""Runs OpenSearch as a child process on loopback, from its jars, for the test of the pipeline
`log-documents`. Not needed to run anything.

`make setup-java` fetches the jars. Our own class starts the node, since the engine is published as
a library and not as a program.
"""

from __future__ import annotations

import http.client
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy import jar_sets, parts
from deploy.ports import LOOPBACK
from runtime.children import Child

SOURCE: Final = Path(__file__).resolve().parent.parent / "java" / "DocumentStore.java"
PROBE_TIMEOUT_S: Final = 2.0
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentStore:
    """One node with everything under `directory`."""

    directory: Path
    port: int
    transport_port: int

    @property
    def url(self) -> str:
        """The address of its HTTP interface."""
        return f"http://{LOOPBACK}:{self.port}"

    def child(self) -> Child:
        """Its process. Raises OperationalFailure without Java or the jars."""
        (self.directory / "config").mkdir(parents=True, exist_ok=True)
        classpath = os.pathsep.join(map(str, jar_sets.OPENSEARCH.jars()))
        ports = (str(self.port), str(self.transport_port))
        command = [str(parts.java().executable), *_OPTIONS, "-cp", classpath, str(SOURCE), str(self.directory), *ports]
        return Child(name="document-store", directory=self.directory, command=command, log=self.directory / "store.log")

    def is_serving(self) -> bool:
        """True when it answers."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
