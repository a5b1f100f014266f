"""Counts of a task's reads, as a line of JSON in a separate file, because Spark's Python data
sources have no metrics. They show tests and people how much filters and splits save.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.logs.log_reader import StoredBatch


@dataclass(slots=True)
class Tally:
    """Counts of one task. `batches` are those that were received, `opened` those whose records
    were made into rows, `node_ids` the brokers that were read.
    """

    batches: int = 0
    opened: int = 0
    read_bytes: int = 0
    node_ids: list[int] = field(default_factory=list)

    def counted(self, stored: Iterable[StoredBatch]) -> Iterator[StoredBatch]:
        """The batches, counted on their way."""
        for batch in stored:
            self.batches += 1
            self.read_bytes += len(batch.records)
            yield batch

    def write(self, wanted: OffsetRange, directory: str) -> None:
        """Add the file to the directory, which all workers reach."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(wanted) | asdict(self), sort_keys=True)
        (folder / f"{uuid.uuid4().hex}.json").write_text(line + "\n")


def read_tallies(directory: str) -> list[dict[str, object]]:
    """All lines of a directory."""
    return [json.loads(file.read_text()) for file in sorted(Path(directory).glob("*.json"))]
