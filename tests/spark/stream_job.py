"""A streaming query as a program of its own, for tests that kill it: from one topic to another,
until it is ended. Arguments: bootstrap servers, source topic, target topic, checkpoint directory.
"""

from __future__ import annotations

import sys

from deploy.class_archives import spark_environment


def main() -> None:
    """Run until killed."""
    import os

    os.environ.update(spark_environment())
    from spark_jobs.session import session
    from spark_jobs.streaming import run_queries

    bootstrap, source, target, checkpoint = sys.argv[1:]
    spark = session("stream job", is_local=True, cores=2)
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("antipode").options(**servers, subscribe=source, startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", 500).load().select("key", "value")
    writer = rows.writeStream.format("antipode").options(**servers, topic=target, checkpointLocation=checkpoint)
    run_queries(writer.start)


if __name__ == "__main__":
    main()
