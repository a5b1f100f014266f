"""The archive job as a program for spark-submit (`archiving/archive_run.py`).

spark-submit spark_jobs/archive.py --bootstrap-server host:port --to file:///archive
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from runtime.process import ExitCode, OperationalFailure
from spark_jobs.archiving.archive_run import ArchiveRequest, ArchiveRun
from spark_jobs.archiving.core.manifest import BATCHES, FORMATS
from spark_jobs.session import Progress, session


def main(arguments: Sequence[str] | None = None) -> int:
    """The program for spark-submit; the exit code is 1 when there were problems or holes."""
    parser = argparse.ArgumentParser(description="Archive topics; exit code 0 complete, 1 with holes or problems.")
    parser.add_argument("--bootstrap-server", required=True, help="brokers, host:port[,host:port...]")
    parser.add_argument("--to", required=True, help="the archive: file:///dir, hdfs://host:port/dir, s3a://bucket/dir")
    parser.add_argument("--topics", default=".*", help="a regular expression on whole names")
    parser.add_argument("--format", choices=FORMATS, default=BATCHES, help="raw batches, or records as Parquet")
    parser.add_argument("--until-end", action="store_true", help="repeat until a run finds nothing new")
    parser.add_argument("--wave-bytes", type=int, default=0, help="size of a wave; 0: 1 GiB for each core")
    given = parser.parse_args(arguments)
    request = ArchiveRequest(
        bootstrap=given.bootstrap_server,
        to=given.to,
        topics=given.topics,
        format=given.format,
        is_until_end=given.until_end,
        wave_bytes=given.wave_bytes,
    )
    progress: Progress = lambda text: print(text, file=sys.stderr)  # noqa: E731
    try:
        spark = session("antipode archive", is_local=False)
        report = ArchiveRun(request, progress).run(lambda: spark, cores=spark.sparkContext.defaultParallelism)
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return ExitCode.FAILED
    for problem in report.problems:
        print(problem, file=sys.stderr)
    print(
        f"{len(report.ranges)} ranges, {report.as_document()['bytes']:,} bytes, {len(report.holes)} holes: {report.to}"
    )
    return ExitCode.FAILED if report.problems or report.holes else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
