"""Standard input, output and error of a command: output that cannot be written is one message, and
a stream that the caller has closed is empty.

A reader of the output that ends early, such as `head`, is no failure: BrokenPipeError stays as it
is.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

from runtime.process import OperationalFailure


class OutputFailed(OperationalFailure):
    """Standard output cannot be written, as on a full disk."""


class _CheckedOutput(io.FileIO):
    """Descriptor 1, whose failures are OutputFailed."""

    _has_failed = False

    # Any: the buffer protocol has no type before Python 3.12
    def write(self, data: Any, /) -> int:
        """Write to the descriptor. After a failure that was raised, the interpreter's own flush at
        its end writes nothing more.
        """
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._has_failed = True
            raise OutputFailed(f"standard output cannot be written: {error.strerror}") from error


def prepare_standard_streams() -> None:
    """Check what is written to standard output, and open closed standard streams at /dev/null."""
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_CheckedOutput(output.fileno(), "wb", closefd=False)),
            encoding=output.encoding,
            errors=output.errors,
            line_buffering=output.line_buffering,
        )
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # else the next file or socket that is opened gets the descriptor, and all that is
            # printed to it
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
