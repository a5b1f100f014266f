"""The store of an audit's counts: one Parquet file for each batch of each site's query. A file is
written whole or not at all, and a batch that is run again replaces its file under the same name.

    STATE/counts/<site>/00000000000000000007.parquet     what the batch counted
    STATE/published/<site>/00000000000000000007.parquet  what programs published, as the batch read it
    STATE/checkpoints/<site>/                            the query's checkpoint
    STATE/audit.json                                     window and sites, fixed by the first run
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.process import OperationalFailure
from spark_jobs.auditing.core.counts import Count, PublishedCount

COUNT_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("window_start_ms", pa.int64()),
        ("delay_bucket", pa.int32()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("delay_sum_ms", pa.int64()),
        ("delay_max_ms", pa.int64()),
    ]
)
PUBLISHED_COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("tier", pa.string()),
        ("topic", pa.string()),
        ("window_start_ms", pa.int64()),
        ("stored", pa.int64()),
        ("rejected", pa.int64()),
    ]
)

Row = TypeVar("Row", Count, PublishedCount)


@dataclass(frozen=True, slots=True)
class AuditStore:
    """The state of one audit."""

    directory: Path

    def settings(self, **wanted: Any) -> None:
        """Store the settings that must not change between runs. Raises OperationalFailure when the
        state was created with other values.
        """
        file = self.directory / "audit.json"
        if not file.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            _write_whole(file, lambda path: path.write_text(json.dumps(wanted), encoding="utf-8"))
        known = self.known_settings()
        for key, value in wanted.items():
            if known.get(key) != value:
                raise OperationalFailure(
                    f"{self.directory} is the state of an audit with --{key.replace('_', '-')} {known.get(key)!r}, "
                    f"not {value!r}: "
                    "give that value, or another directory"
                )

    def known_settings(self) -> dict[str, Any]:
        """The settings that `settings` fixed. Raises OperationalFailure when there is no audit
        here.
        """
        try:
            return dict(json.loads((self.directory / "audit.json").read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise OperationalFailure(
                f"{self.directory} is no state of an audit: start it with antipode audit run"
            ) from error

    def checkpoint(self, site: str) -> str:
        """The directory in which the site's query keeps its checkpoint."""
        return str(self.directory / "checkpoints" / site)

    def keep(self, site: str, batch: int, counts: Sequence[Count], published: Sequence[PublishedCount]) -> None:
        """Store the counts of the batch, replacing those of an earlier attempt."""
        for kind, rows, columns in (
            ("published", published, PUBLISHED_COLUMNS),
            ("counts", counts, COUNT_COLUMNS),
        ):
            file = self.directory / kind / site / f"{batch:020d}.parquet"
            table = pa.Table.from_pylist([row._asdict() for row in rows], schema=columns)
            file.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(file, lambda path, table=table: pq.write_table(table, path))

    def sites(self) -> list[str]:
        """Sites with counts."""
        root = self.directory / "counts"
        return sorted(path.name for path in root.iterdir()) if root.exists() else []

    def counts(self, site: str) -> Iterator[list[Count]]:
        """The site's counts, batch by batch."""
        return (_rows(file, Count) for file in self._files("counts", site))

    def published(self, site: str) -> Iterable[PublishedCount]:
        """The counts that programs published, as the site's query read them."""
        for file in self._files("published", site):
            yield from _rows(file, PublishedCount)

    def _files(self, kind: str, site: str) -> list[Path]:
        return sorted((self.directory / kind / site).glob("*.parquet"))


def _rows(file: Path, kind: type[Row]) -> list[Row]:
    return [kind(**row) for row in pq.read_table(file).to_pylist()]


def _write_whole(file: Path, write: Any) -> None:
    part = file.with_name(f".{file.name}.{os.getpid()}")
    write(part)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)
