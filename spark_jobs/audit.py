"""The audit job as a program for spark-submit (`auditing/audit_run.py`).

spark-submit spark_jobs/audit.py --site a=host:port --site b=host:port --state DIRECTORY
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.process import ExitCode, OperationalFailure
from spark_jobs.auditing.audit_run import MINUTE_MS, Audit, AuditRequest
from spark_jobs.session import session


def main(arguments: Sequence[str] | None = None) -> int:
    """The program for spark-submit."""
    parser = argparse.ArgumentParser(description="Count the records of sites by topic and window of event time.")
    parser.add_argument("--site", action="append", required=True, help="name=host:port[,host:port...], once a site")
    parser.add_argument("--state", type=Path, required=True, help="directory for counts and checkpoints")
    parser.add_argument("--topics", default="[^_].*", help="a regular expression on whole names")
    parser.add_argument("--window-ms", type=int, default=MINUTE_MS, help="length of a window of event time")
    parser.add_argument("--counts-topic", default="", help="the topic in which programs publish what they did")
    parser.add_argument("--once", action="store_true", help="count what is there now, and end")
    given = parser.parse_args(arguments)
    request = AuditRequest(
        sites=dict(one.split("=", 1) for one in given.site),
        state=given.state,
        topics=given.topics,
        window_ms=given.window_ms,
        counts_topic=given.counts_topic,
    )
    try:
        request.check(request.sites)
        audit = Audit(session("antipode audit", is_local=False), request, lambda text: print(text, file=sys.stderr))
        if given.once:
            audit.run_until_end()
        else:
            audit.run()
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
