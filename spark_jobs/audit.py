"""The audit job as a program for spark-submit (`auditing/audit_run.py`).

spark-submit spark_jobs/audit.py --site a=host:port --site b=host:port --state DIRECTORY
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from runtime.process import ExitCode, OperationalFailure
from spark_jobs.auditing.audit_run import MINUTE_MS, Audit, AuditRequest
from spark_jobs.logs.survey import site_name
from spark_jobs.session import session

_SITE: Final = "antipode.site"


def site_options(site: str, bootstrap: str) -> dict[str, str]:
    """The data source's options for a site: its own copies are read. Without them, a consumer at a
    standby reads the active site's logs, and nothing could be missing. Brokers that belong to no
    site have no copies of others. Raises OperationalFailure for brokers of another site.
    """
    try:
        found = site_name(bootstrap)
    except OperationalFailure:
        return {_SITE: site}  # its query is started again until they answer
    if found and found != site:
        raise OperationalFailure(f"--site {site}={bootstrap}: these brokers are those of site {found}")
    return {_SITE: site} if found else {}


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
    sites = dict(one.split("=", 1) for one in given.site)
    request = AuditRequest(
        sites=sites,
        state=given.state,
        topics=given.topics,
        window_ms=given.window_ms,
        counts_topic=given.counts_topic,
    )
    try:
        request.check(sites)
        request = replace(request, options={site: site_options(site, servers) for site, servers in sites.items()})
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
