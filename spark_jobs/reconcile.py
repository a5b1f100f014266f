"""The reconciliation as a program for spark-submit: reads both sites' batch headers in Spark,
compares them range by range, and names every difference.

    spark-submit spark_jobs/reconcile.py --source host:port --target host:port --out DIRECTORY
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.process import OperationalFailure
from runtime.times import ACCEPTED, unix_ms
from spark_jobs.reconciling.core.verdict import Verdict
from spark_jobs.reconciling.core.waves import WAVE_OFFSETS, FindingLimits, PauseBounds
from spark_jobs.reconciling.report import write_report
from spark_jobs.reconciling.request import NO_BOUND, SETTLE_TIMEOUT_MS, Request
from spark_jobs.reconciling.run import reconcile
from spark_jobs.session import session


def main(arguments: Sequence[str] | None = None) -> int:
    """The program for spark-submit; returns the verdict's exit code."""
    given = _parser().parse_args(arguments)
    request = Request(
        source_site=given.source_site,
        target_site=given.target_site,
        source_bootstrap=given.source,
        target_bootstrap=given.target,
        topic_whitelist=tuple(filter(None, given.whitelist.split(","))),
        topic_blacklist=tuple(filter(None, given.blacklist.split(","))),
        range_offsets=given.range_offsets,
        is_deep=given.deep,
        settle_timeout_ms=given.settle_timeout_ms,
        until_ms=given.until,
        limits=FindingLimits(per_topic=given.limit_per_topic, in_all=given.limit),
        pause=PauseBounds(lag_records=given.pause_lag_records, latency_ms=given.pause_latency_ms),
        wave_offsets=given.wave_offsets,
        process_offsets_max=0,  # Spark is there already, and its workers may be nearer to the brokers
    )
    spark = session("antipode reconcile", is_local=False)
    try:
        found = reconcile(
            lambda: spark, request, lambda text: print(text, file=sys.stderr), out=given.out, is_resumed=given.resume
        )
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return Verdict.NOT_COMPARED.exit_code
    write_report(found, given.out)
    print(f"{found.verdict}: {given.out / 'report.html'}")
    return found.verdict.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare the logs of two sites; exit code 0 equal, 1 different, 2 not compared."
    )
    add = parser.add_argument
    add("--source", required=True, help="bootstrap servers of the source site, host:port[,host:port...]")
    add("--target", required=True, help="bootstrap servers of the target site")
    add("--source-site", default="source", help="what reports call the source")
    add("--target-site", default="target", help="what reports call the target")
    add("--whitelist", default=".*", help="topics, comma-separated regular expressions on whole names")
    add("--blacklist", default="", help="topics left out; wins over the whitelist")
    add("--range-offsets", type=int, default=0, help="offsets in one digest's range; 0 chooses")
    add("--deep", action="store_true", help="open the batches that differ and name the exact offsets")
    add("--settle-timeout-ms", type=int, default=SETTLE_TIMEOUT_MS, help="time for the target to catch up")
    add("--until", type=unix_ms, default=NO_BOUND, help=f"compare only records before this time: {ACCEPTED}")
    add("--out", type=Path, required=True, help="directory for report.json, report.html and Parquet tables")
    add("--resume", action="store_true", help="go on with the interrupted run whose --out this is")
    add("--limit", type=int, default=0, help="findings in all, then the run ends; 0 lists every one")
    add("--limit-per-topic", type=int, default=0, help="findings of each topic; 0 lists every one")
    add("--pause-lag-records", type=int, default=0, help="pause while the target lacks more records; 0: never")
    add("--pause-latency-ms", type=int, default=0, help="pause while a site takes longer to answer; 0: never")
    add("--wave-offsets", type=int, default=WAVE_OFFSETS, help="offsets that are judged and noted at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
