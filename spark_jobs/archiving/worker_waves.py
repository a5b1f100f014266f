"""Runs one function on many items in Spark's workers, wave by wave, with progress between waves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.session import Progress, result_of
from wire.batches.record_batch import InvalidBatch
from wire.client.client_errors import KafkaClientError

WAVE_PER_CORE: Final = 4
"""Ranges that a core stores between two reports of progress."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_waves(
    session: Callable[[], SparkSession],
    items: Sequence[Item],
    work: Callable[[Item], Result],
    verb: str,
    progress: Progress,
) -> list[tuple[Item, Result]]:
    """Return each item with the worker's result, and report the progress after each wave. `session`
    is called if there are items. Raises OperationalFailure.
    """
    found: list[tuple[Item, Result]] = []
    if not items:
        return found
    spark = session()
    size = spark.sparkContext.defaultParallelism * WAVE_PER_CORE
    for start in range(0, len(items), size):
        wave = items[start : start + size]
        attempts = result_of(spark.sparkContext.parallelize(wave, len(wave)).map(partial(_attempted, work)).collect)
        for item, attempt in zip(wave, attempts, strict=True):
            if isinstance(attempt, _Failed):
                raise OperationalFailure(attempt.reason)
            found.append((item, attempt))
        progress(f"{verb} {len(found)} of {len(items)}")
    return found


class _Failed(NamedTuple):
    """The reason why an item failed in a worker. An exception would be wrapped in pages of Spark's
    own text.
    """

    reason: str


def _attempted(work: Callable[[Item], Result], item: Item) -> Result | _Failed:
    try:
        return work(item)
    except (OperationalFailure, KafkaClientError, InvalidBatch, OSError) as error:
        return _Failed(str(error))
