"""Spark's Kafka connector as the compatibility matrix drives it, in a process of its own:
`python -m tests.compatibility.spark_queries`.

write SERVERS TOPIC                 values on standard input, one a line
read SERVERS TOPIC ISOLATION        prints "partition offset value"
"""

from __future__ import annotations

import sys

from spark_jobs.session import session


def main() -> None:
    """One query."""
    command, servers, topic = sys.argv[1:4]
    spark = session("compatibility", is_local=True, cores=2)
    if command == "write":
        rows = [(line.rstrip("\n"),) for line in sys.stdin]
        frame = spark.createDataFrame(rows, "value string").coalesce(1)
        frame.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    else:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        frame = reader.option("kafka.isolation.level", sys.argv[4]).load()
        for row in frame.select("partition", "offset", "value").orderBy("partition", "offset").collect():
            print(row.partition, row.offset, bytes(row.value).decode())
    spark.stop()


if __name__ == "__main__":
    main()
