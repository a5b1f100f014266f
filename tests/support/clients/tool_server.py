"""Apache Kafka's tools in one JVM of a test run (`java/ToolServer.java`): only the first of them
waits for the start of a JVM.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy import apache_kafka

SOURCE: Final = Path(__file__).with_name("java") / "ToolServer.java"
_LENGTH: Final = struct.Struct(">i")
_CHUNK: Final = 1 << 16


def run_tool(command: Sequence[str], given: bytes, within_ms: float) -> subprocess.CompletedProcess[bytes]:
    """Run a tool (the main class and its arguments) to its end. TimeoutExpired when it takes
    longer. A tool that starts while another one runs gets a JVM of its own.
    """
    server = _server()
    if not server.is_free.acquire(blocking=False):
        return subprocess.run(
            apache_kafka.program(*command), input=given, capture_output=True, timeout=within_ms / 1000, check=False
        )
    try:
        return server.run(command, given, within_ms)
    finally:
        server.is_free.release()


class _ToolServer:
    def __init__(self) -> None:
        self.is_free = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._end)

    def run(self, command: Sequence[str], given: bytes, within_ms: float) -> subprocess.CompletedProcess[bytes]:
        process = self._running()
        deadline = time.monotonic() + within_ms / 1000
        parts = [one.encode() for one in command]
        request = _LENGTH.pack(len(parts)) + b"".join(_LENGTH.pack(len(one)) + one for one in (*parts, given))
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.flush()
        try:
            code = _LENGTH.unpack(self._read(process, _LENGTH.size, deadline))[0]
            printed, complaints = (
                self._read(process, _LENGTH.unpack(self._read(process, _LENGTH.size, deadline))[0], deadline)
                for _ in range(2)
            )
        except TimeoutError:
            self._end()
            raise subprocess.TimeoutExpired(list(command), within_ms / 1000) from None
        return subprocess.CompletedProcess(list(command), code, printed, complaints)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                apache_kafka.program(str(SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        found = b""
        while len(found) < size:
            is_there, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not is_there:
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), min(_CHUNK, size - len(found)))
            assert chunk, f"the JVM of Kafka's tools ended with {process.wait()}"
            found += chunk
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@functools.cache
def _server() -> _ToolServer:
    return _ToolServer()
