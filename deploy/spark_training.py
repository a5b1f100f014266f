"""A small Spark job whose JVM, when it ends, writes an archive of its loaded classes.

    python -m deploy.spark_training FILE

The job uses what reconciliations and archives use: rows from Python workers, digests, windows,
joins, Parquet.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

DUMP_WITHIN_S = 300


def main(arguments: list[str]) -> None:
    """Run it, and wait until the JVM has written the file."""
    (file,) = arguments
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit={file}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": options,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.appName("class archive").master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for is_compiled in ("true", "false"):
        spark.conf.set("spark.sql.codegen.wholeStage", is_compiled)
        spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if is_compiled == "true" else "NO_CODEGEN")
        _queries(spark)
    gateway: Any = SparkContext._gateway
    # the JVM writes the archive at its exit, so Python ends the gateway and waits for the process
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(DUMP_WITHIN_S)


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    return iter(batches)


def _queries(spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 2).mapInArrow(_same, "id bigint").persist()
    digested = _digested(rows)
    digested.collect()
    before = F.lag("id").over(Window.partitionBy("kind").orderBy("id"))
    kinds = rows.withColumn("kind", (F.col("id") % 3).cast("string")).withColumn("before", before)
    kinds.where(F.col("before").isNull() | (F.col("before") > 3)).limit(5).collect()
    wanted = spark.createDataFrame([("0",)], "kind string")
    kinds.join(F.broadcast(wanted), ["kind"], "left_semi").unionByName(kinds).count()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "rows")
        digested.write.parquet(path)
        spark.read.parquet(path).where("records > 1").count()
    rows.unpersist()


def _digested(rows: DataFrame) -> DataFrame:
    hashed = F.sum(F.xxhash64("id").cast("decimal(38,0)")).cast("string")
    start = F.floor(F.col("id") / F.lit(10)) * F.lit(10)
    return (
        rows.withColumn("start", start.cast("bigint"))
        .groupBy("start")
        .agg(F.count("*").alias("records"), F.sha2(hashed, 256).substr(1, 16).alias("digest"))
    )


if __name__ == "__main__":
    main(sys.argv[1:])
