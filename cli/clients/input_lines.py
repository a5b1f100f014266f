"""The lines of a file or of standard input, read without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from pathlib import Path

from runtime.process import OperationalFailure

READ_BYTES = 64 * 1024


def size_bytes(file: Path | None) -> int | None:
    """The size of the file; None for standard input. Raises OperationalFailure."""
    try:
        return None if file is None else file.stat().st_size
    except OSError as error:
        raise OperationalFailure(f"--file {file} cannot be read: {error.strerror}") from error


async def lines_of(file: Path | None) -> AsyncGenerator[bytes, None]:
    """Yield lines as they arrive, so that typed lines are sent at once. Raises
    OperationalFailure.
    """
    try:
        descriptor = sys.stdin.fileno() if file is None else os.open(file, os.O_RDONLY)
    except OSError as error:
        raise OperationalFailure(f"--file {file} cannot be read: {error.strerror}") from error
    rest = b""
    try:
        while data := await _next_bytes(descriptor, file):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line
    finally:
        if file is not None:
            os.close(descriptor)
    if rest:
        yield rest


async def _next_bytes(descriptor: int, file: Path | None) -> bytes:
    reading: Future[bytes] = Future()
    reading.set_running_or_notify_cancel()

    def read() -> None:
        try:
            reading.set_result(_read(descriptor, file))
        except OperationalFailure as error:
            reading.set_exception(error)

    # not a thread of the loop: an interrupted command would wait for another line
    threading.Thread(target=read, daemon=True).start()
    return await asyncio.wrap_future(reading)


def _read(descriptor: int, file: Path | None) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError as error:
        raise OperationalFailure(f"{file or 'standard input'} cannot be read: {error.strerror}") from error
