"""`antipode restore`: topics from an archive into a site that does not have them.

For an archive of batches the site gets a link for the time of the restore, under which it is
passive for these topics, so that clients cannot write between the restored batches. At the end the
site becomes active under it in a leader epoch above those of the archive, and the link is deleted.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.shared.brokers import check_brokers_answer
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer
from cli.shared.output import Output, OutputFormat, console, print_json, report_progress
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents, site_clients
from cli.spark.local_sessions import Cores, lazy_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dr.sites.site_client import SiteClient
    from spark_jobs.archiving.core.restore_plan import RestorePlan
    from spark_jobs.archiving.restore import RestoreReport
    from wire.control.cluster_pb2 import LinkRecord

LINK = "antipode-restore"
ARCHIVE_SITE = "antipode-archive"
"""The source of that link; no site has this name."""
ENFORCED_WITHIN_MS = 10_000


def restore(
    archive: Annotated[str, typer.Option("--from", help="The archive, of batches or of records.")],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    at: Annotated[
        str,
        typer.Option("--at", help="Of batches: the site of --environment or --site [default: the only one]."),
    ] = "",
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    topics: Annotated[str, typer.Option(help="Topics: a regular expression on whole names.")] = ".*",
    cores: Cores = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Restore topics: from batches with their ids, offsets, leader epochs and bytes, from records
    as an ordinary producer, with the old place in headers. Refused for a topic that is not empty.

    Example: antipode restore --from file:///var/archive --bootstrap-server 127.0.0.1:9192
    --environment out/sites/environment.json --at b
    """
    from spark_jobs.archiving.core.manifest import BATCHES
    from spark_jobs.archiving.record_restore import restored_records
    from spark_jobs.archiving.restore import archive_format, planned

    with failures_as_messages():
        is_of_batches = archive_format(archive) == BATCHES
        known, name = _site_at(at, environment, site) if is_of_batches else ({}, "")
        check_brokers_answer(bootstrap_server)
        plan = planned(archive, bootstrap_server, topics)
        with lazy_session("antipode restore", cores) as session:
            # before the topics are made: without Spark nothing is changed at the site
            spark = session()
            if is_of_batches:
                report = restored(spark, plan, archive=archive, bootstrap=bootstrap_server, site=name, known=known)
            else:
                with _named_if_in_part(plan):
                    report = restored_records(
                        spark, plan, address=archive, bootstrap=bootstrap_server, progress=report_progress
                    )
    if output is OutputFormat.JSON:
        print_json(asdict(report))
        return
    for sentence in report.skipped:
        console.print(f"  [red]not restored:[/] {escape(sentence)}", highlight=False)
    what = "offsets" if is_of_batches else "records"
    counts = f"{len(report.topics)} topics, {report.partitions} partitions, {report.offsets:,} {what}"
    console.print(f"restored {counts} in {report.elapsed_ms / 1000:.1f} s", highlight=False, markup=False)


def _site_at(at: str, environment: EnvironmentFile, site: SiteOptions) -> tuple[Agents, str]:
    """The agents of all sites that are given, and the name of the chosen one."""
    known = agents(environment, site)
    name = at or (next(iter(known)) if len(known) == 1 else "")
    if name not in known:
        raise usage_error(f"--at {at!r} is no known site; accepted: {', '.join(sorted(known))}")
    return known, name


def restored(
    spark: SparkSession, plan: RestorePlan, *, archive: str, bootstrap: str, site: str, known: Agents
) -> RestoreReport:
    """Restore what is planned at the site. Raises OperationalFailure, after it has deleted the
    link.
    """
    from spark_jobs.archiving.restore import LinkClaim, RestoreReport, restore_logs

    started = time.monotonic()
    record = asyncio.run(_opened(plan, bootstrap=bootstrap, site=site, known=known))
    try:
        claim = LinkClaim(record.name, record.epoch)
        with _named_if_in_part(plan):
            restore_logs(spark, plan, address=archive, bootstrap=bootstrap, link=claim, progress=report_progress)
    finally:
        # Also after a failure: nothing else would end the link, under which clients cannot write.
        asyncio.run(_closed(record, plan, bootstrap=bootstrap, site=site, known=known))
    return RestoreReport(
        archive=archive,
        topics=tuple(topic.name for topic in plan.topics),
        partitions=sum(topic.partition_count for topic in plan.topics),
        offsets=sum(log.end_offset - log.first_offset for log in plan.logs),
        skipped=plan.skipped,
        elapsed_ms=round((time.monotonic() - started) * 1000),
    )


@contextmanager
def _named_if_in_part(plan: RestorePlan) -> Iterator[None]:
    """Name the topics of a restore that fails or is interrupted, before any other step can fail:
    clients can use them, and nothing in them shows that records are missing.
    """
    try:
        yield
    except BaseException:
        names = ", ".join(topic.name for topic in plan.topics)
        report_progress(
            "the restore did not end: these topics may hold a part of their records, and clients can read and write "
            f"them: {names}. Delete those that are not empty, then restore again"
        )
        raise


async def _opened(plan: RestorePlan, *, bootstrap: str, site: str, known: Agents) -> LinkRecord:
    """Make the link and the topics."""
    from spark_jobs.archiving.restore import LinkClaim, create_topics, wait_for_leaders

    report_progress(f"making {len(plan.topics)} topics at {site}")
    record = _link_record(plan, bootstrap=bootstrap, site=site, known=known)
    async with site_clients({site: known[site]}) as clients:
        await clients[site].create_link(record)
        try:
            await clients[site].adopt_link(record, timeout_ms=ENFORCED_WITHIN_MS)
            await create_topics(plan.topics, known[site], LinkClaim(record.name, record.epoch))
            await wait_for_leaders(bootstrap, plan.topics)
        except BaseException:
            await clients[site].delete_link(record.name, epoch=record.epoch)
            raise
    return record


async def _closed(record: LinkRecord, plan: RestorePlan, *, bootstrap: str, site: str, known: Agents) -> None:
    """Give the topics to the site in a leader epoch above those of the archive; delete the link."""
    report_progress(f"opening the topics to clients of {site}")
    async with site_clients({site: known[site]}) as clients:
        await _promoted(clients[site], record, plan, bootstrap)


async def _promoted(client: SiteClient, record: LinkRecord, plan: RestorePlan, bootstrap: str) -> None:
    from dr.sites.core.fencing import raised
    from spark_jobs.archiving.restore import wait_for_leader_epochs

    active = raised(record, to_site=client.name, highest_leader_epoch=plan.highest_leader_epoch, now_ms=_now_ms())
    await client.adopt_link(active, timeout_ms=ENFORCED_WITHIN_MS)
    await wait_for_leader_epochs(bootstrap, [topic.name for topic in plan.topics], active.leader_epoch_floor)
    await client.delete_link(active.name, epoch=active.epoch)


def _link_record(plan: RestorePlan, *, bootstrap: str, site: str, known: Agents) -> LinkRecord:
    from dr.links.administration import LinkSpec, SiteAddresses

    own = SiteAddresses(bootstrap_servers=bootstrap, agents=known[site])
    return LinkSpec(
        name=LINK,
        source_site=ARCHIVE_SITE,
        target_site=site,
        source=own,
        target=own,
        topic_whitelist=[re.escape(topic.name) for topic in plan.topics],
        topic_blacklist=[],
        group_whitelist=[],
        is_routed=False,
    ).record(now_ms=_now_ms())


def _now_ms() -> int:
    return round(time.time() * 1000)
