"""The memory of a worker that archives a range larger than it. Promised: the worker streams the
range, in both formats, so that its memory does not grow with the size of records and range.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_jobs.archiving.core.manifest import BATCHES, RECORDS
from tests.spark.conftest import TwoLogs
from wire.batches.records import Record, encode_batch
from wire.client.raw_client import KafkaClient

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
COUNT = 1_000
LARGE_BYTES = 900_000
GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""Two answers to a fetch, the rows of one file, and what Arrow and the client allocate."""

ARCHIVER = """
import json, resource, sys
from spark_jobs.archiving.core.archive_plan import Piece
from spark_jobs.archiving.range_files import store_piece
from spark_jobs.logs.core.splits import Split

address, format_name, bootstrap, topic, until = sys.argv[1:]
split = Split(site="", topic=topic, partition=0, first_offset=0, until_offset=int(until), is_first=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stored = store_piece(address, format_name, bootstrap, Piece("id", split, False))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([stored.records, sum(file.bytes for file in stored.files), grown * 1024]))
"""


@pytest.mark.parametrize("format_name", [BATCHES, RECORDS])
@pytest.mark.parametrize("is_in_headers", [False, True])
def test_a_worker_streams_a_range_of_large_records(
    logs: TwoLogs, tmp_path: Path, format_name: str, *, is_in_headers: bool
) -> None:
    now_ms = round(time.time() * 1000)

    async def produce() -> None:
        async with KafkaClient(logs.a.bootstrap) as client:
            for _ in range(COUNT):
                large = os.urandom(LARGE_BYTES)
                value, headers = (b"", [("large", large)]) if is_in_headers else (large, [])
                record = Record(key=None, value=value, timestamp_ms=now_ms, headers=headers)
                await client.produce(logs.topic, 0, encode_batch([record]))

    asyncio.run(produce())
    ended = subprocess.run(
        [sys.executable, "-c", ARCHIVER, tmp_path.as_uri(), format_name, logs.a.bootstrap, logs.topic, str(COUNT)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    records, size_bytes, grown_bytes = json.loads(ended.stdout)
    assert records == COUNT
    assert size_bytes > COUNT * LARGE_BYTES > 3 * GROWTH_BYTES_MAX
    assert grown_bytes < GROWTH_BYTES_MAX
