"""Rows of splits that a job has planned itself, of one site or of both, as a DataFrame.

A task reads several splits of one site. The splits travel to the workers with the function that
reads them, so that Spark starts none of the planning workers that a data source needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.connector.core.options import Mode
from spark_jobs.logs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA
from spark_jobs.logs.core.splits import SPLITS_PER_CORE, Split, shared_out
from spark_jobs.logs.log_reader import read_splits
from spark_jobs.logs.stored_rows import batch_rows, stored_record_rows

_SCHEMAS: Final = {Mode.HEADERS: BATCH_SCHEMA, Mode.STORED: RECORD_SCHEMA}


def frame_of_splits(
    spark: SparkSession, pieces: Sequence[Split], bootstraps: Mapping[str, str], mode: Mode
) -> DataFrame:
    """The batch headers (mode HEADERS) or the records (mode STORED) of the splits; `bootstraps` has
    the brokers of each site that a split names.
    """
    tasks = shared_out(pieces, tasks=SPLITS_PER_CORE * spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return numbers.mapInArrow(partial(_rows, tuple(tasks), dict(bootstraps), mode), _SCHEMAS[mode])


def _rows(
    tasks: Sequence[Sequence[Split]], bootstraps: Mapping[str, str], mode: Mode, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = stored_record_rows if mode is Mode.STORED else batch_rows
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            splits = tasks[number]
            yield from rows(read_splits(bootstraps[splits[0].site], splits))
