"""Reports on the tables of `road_ingest.py`: quality and delay by hour, the skew of the partitions,
plates that were at two places in too short a time, references that dangle.

    spark-submit spark_jobs/pipelines/road_report.py --from /var/road --places deploy/places.json

`--places` names where checkpoints are: a JSON object of kilometres along the road by checkpoint id.
Two sightings of one plate whose distance no car drives in that time are of two cars.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from spark_jobs.pipelines.catalogue import JobParser, submitted

HOUR_MS = 3_600_000


def parser() -> argparse.ArgumentParser:
    """The job's options."""
    found = JobParser(description="Report what road-ingest has stored.")
    found.add_argument("--from", dest="source", required=True, type=Path, help="the directory of the tables")
    found.add_argument(
        "--places", type=places_in, default={}, help="JSON file: kilometres along the road by checkpoint id"
    )
    found.add_argument("--kmh-max", type=float, default=200.0, help="faster is not one car")
    found.add_argument("--delay-alarm-ms", type=int, default=0, help="an hour with a higher p99 is an alarm; 0: none")
    found.check = _missing_tables
    return found


def places_in(file: str) -> dict[str, float]:
    """The kilometres of a file by checkpoint id. argparse.ArgumentTypeError."""
    try:
        return {str(place): float(km) for place, km in json.loads(Path(file).read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f"{file} has no JSON object of kilometres by checkpoint id: {error}"
        ) from error


def _missing_tables(given: argparse.Namespace) -> str | None:
    if not (given.source / "stored").is_dir():
        return f"--from {given.source} has no tables of road-ingest"
    return None


def run(spark: SparkSession, given: argparse.Namespace) -> str:
    """The report as JSON."""
    return json.dumps(report_of(spark, given), indent=2)


def report_of(spark: SparkSession, given: argparse.Namespace) -> dict[str, Any]:
    """The report."""
    stored, rejected = table(spark, given.source, "stored"), table(spark, given.source, "rejected")
    results = given.source / "results"
    return {
        "stored": stored.count(),
        "rejected": {row.reason: row["count"] for row in rejected.groupBy("reason").count().collect()},
        "hours": [
            {**row.asDict(), "is_alarm": 0 < given.delay_alarm_ms < row.delay_p99_ms}
            for row in delays_by_hour(stored).collect()
        ],
        "skew": skew(stored),
        "two_places": [row.asDict() for row in two_places(stored, given.places, given.kmh_max).collect()],
        "alerts": table(spark, given.source, "alerts").count(),
        "results": table(spark, given.source, "results").where("not is_dangling").count() if results.exists() else 0,
        "dangling_references": table(spark, given.source, "results").where("is_dangling").count()
        if results.exists()
        else 0,
    }


def table(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    """A table of the ingest."""
    return spark.read.parquet(str(directory / name))


def delays_by_hour(stored: DataFrame) -> DataFrame:
    """Records by hour of capture, and their delay from capture to ingest in ms."""
    delay = F.col("ingest_ms") - F.col("capture_ms")
    hour = (F.floor(F.col("capture_ms") / HOUR_MS) * HOUR_MS).cast("bigint")
    return (
        stored.groupBy(hour.alias("hour_ms"))
        .agg(
            F.count("*").alias("records"),
            F.avg(delay).alias("delay_mean_ms"),
            F.percentile_approx(delay, 0.99).alias("delay_p99_ms"),
            F.max(delay).alias("delay_max_ms"),
        )
        .orderBy("hour_ms")
    )


def skew(stored: DataFrame) -> float:
    """The largest partition over the mean; 1.0 is even, 0.0 nothing is stored."""
    counts = [row["count"] for row in stored.groupBy("topic", "partition").count().collect()]
    return max(counts) * len(counts) / sum(counts) if counts else 0.0


def two_places(stored: DataFrame, places: dict[str, float], kmh_max: float) -> DataFrame:
    """Pairs of sightings of one plate that are too far apart for their time."""
    known = stored.sparkSession.createDataFrame(
        [(name, float(at)) for name, at in places.items()], "checkpoint_id string, km double"
    )
    seen = stored.join(F.broadcast(known), "checkpoint_id").select("plate", "checkpoint_id", "capture_ms", "km")
    first, second = seen.alias("first"), seen.alias("second")
    hours = (F.col("second.capture_ms") - F.col("first.capture_ms")) / F.lit(HOUR_MS)
    distance = F.abs(F.col("second.km") - F.col("first.km"))
    is_later = F.struct("first.capture_ms", "first.checkpoint_id") < F.struct(
        "second.capture_ms", "second.checkpoint_id"
    )
    pairs = first.join(second, (F.col("first.plate") == F.col("second.plate")) & is_later)
    return pairs.where((distance > 0) & (distance > hours * F.lit(kmh_max))).select(
        "first.plate",
        F.col("first.checkpoint_id").alias("first_checkpoint"),
        F.col("second.checkpoint_id").alias("second_checkpoint"),
        F.col("first.capture_ms").alias("first_ms"),
        F.col("second.capture_ms").alias("second_ms"),
        distance.alias("km"),
    )


if __name__ == "__main__":
    submitted(parser(), run)
