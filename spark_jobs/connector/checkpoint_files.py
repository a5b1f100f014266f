"""Copies a Structured Streaming checkpoint with other offsets in its last batch, so that the query
continues at another cluster. The old checkpoint stays unchanged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from runtime.process import OperationalFailure
from spark_jobs.connector.core.checkpoints import (
    InvalidCheckpoint,
    OffsetsFile,
    batch_to_go_on_from,
    parse_offsets_file,
)


class Checkpoint:
    """A checkpoint in a directory of this machine's file system."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            self.batch = batch_to_go_on_from(self._batches("offsets"), self._batches("commits"))
            self.offsets = parse_offsets_file((directory / "offsets" / str(self.batch)).read_text(encoding="utf-8"))
        except (OSError, InvalidCheckpoint) as error:
            raise OperationalFailure(f"{directory} is not a usable checkpoint: {error}") from error

    def copy(self, to: Path, change: Callable[[OffsetsFile], OffsetsFile]) -> None:
        """Write the changed copy, whole or not at all. Batches after the last one that has ended
        are left out: the query reads them again. OperationalFailure when `to` is there.
        """
        if to.exists():
            raise OperationalFailure(f"{to} already exists; accepted: a directory that does not exist")
        partial = to.with_name(f"{to.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(self.directory, partial, ignore=shutil.ignore_patterns("*.crc", "*.tmp"))
        changed = str(change(self.offsets))
        for batch in self._batches("offsets"):
            file = partial / "offsets" / str(batch)
            # Spark refuses a checkpoint without the batch before the last one. It makes no use of
            # its offsets when the last one has ended.
            if batch in (self.batch, self.batch - 1):
                file.write_text(changed, encoding="utf-8")
            else:
                file.unlink()
        partial.rename(to)

    def _batches(self, part: str) -> list[int]:
        return [int(file.name) for file in (self.directory / part).iterdir() if file.name.isdigit()]
