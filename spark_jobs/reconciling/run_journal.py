"""The waves that a reconciliation has judged, in the directory of its report, so that an
interrupted run can be continued.

    judged.jsonl    a line with the run's id and request, then a line a wave

A wave's line is flushed to the disk before the next wave begins. A line that a killed run has not
finished is dropped, and its wave is compared again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from runtime.process import OperationalFailure
from spark_jobs.reconciling.core.judged_waves import JudgedWave, wave_of

FILE: Final = "judged.jsonl"


class RunJournal:
    """One run's journal; `begin` or `resume` first."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE

    def begin(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Start the journal of a new run; one of a former run in the directory is replaced."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(b"")
        self._append({"run_id": run_id, "request": request})

    def resume(self, request: Mapping[str, Any]) -> tuple[str, list[JudgedWave]]:
        """The id of the interrupted run and its waves. Raises OperationalFailure when no run was
        interrupted, or when it was started with other options.
        """
        try:
            text = self._file.read_text(encoding="utf-8")
        except OSError as error:
            raise OperationalFailure(
                f"no run to resume: {self._file} cannot be read ({error.strerror}); give --out of the interrupted run"
            ) from error
        whole, _, torn = text.rpartition("\n")
        if torn:
            os.truncate(self._file, len(f"{whole}\n".encode()) if whole else 0)
        try:
            first, *others = [json.loads(line) for line in whole.splitlines()]
            differing = sorted(key for key, value in first["request"].items() if request.get(key) != value)
            waves = [wave_of(document) for document in others]
        except (KeyError, ValueError) as error:
            raise OperationalFailure(f"no run to resume: {self._file} is damaged: {error}") from error
        if differing:
            key = differing[0]
            raise OperationalFailure(
                f"the interrupted run had another {key}: {first['request'][key]!r}, now {request.get(key)!r}; "
                "repeat its options, or leave --resume out"
            )
        return str(first["run_id"]), waves

    def append(self, wave: JudgedWave) -> None:
        """Note a judged wave."""
        self._append(wave.as_document())

    def _append(self, document: Mapping[str, Any]) -> None:
        with self._file.open("ab") as file:
            file.write(json.dumps(document).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
