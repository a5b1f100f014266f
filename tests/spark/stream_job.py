"""A streaming query as a program of its own, for tests that kill it: from one topic to another,
until it is ended. Arguments: bootstrap servers, source topic, target topic, checkpoint directory,
and where to say that a batch was written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.class_archives import spark_environment


def main() -> None:
    """Run until killed."""
    import os

    os.environ.update(spark_environment())
    from spark_jobs.session import session

    bootstrap, source, target, checkpoint, progress = sys.argv[1:]
    spark = session("stream job", is_local=True, cores=2)
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("antipode").options(**servers, subscribe=source, startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", 500).load().select("key", "value")
    writer = rows.writeStream.format("antipode").options(**servers, topic=target, checkpointLocation=checkpoint)
    query = writer.start()
    while query.isActive:
        query.awaitTermination(0.05)
        if query.lastProgress is not None:
            Path(progress).write_text(str(query.lastProgress.batchId))


if __name__ == "__main__":
    main()
