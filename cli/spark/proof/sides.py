"""The two sites of a comparison: finds them by brokers or by link, and checks that they answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.shared.failures import usage_error
from cli.shared.output import report_progress
from cli.shared.sites import needed_environment, open_environment, site_clients
from runtime.addresses import parse_host_ports
from runtime.process import OperationalFailure
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, blacklist_of

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from wire.control.cluster_pb2 import LinkRecord


REQUEST_TIMEOUT_MS = 5_000
ANSWERED_WITHIN_MS = 20_000
"""As long as a comparison waits for a site: a line that fails for a few seconds ends none."""
REPORTED_AFTER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two sites, and the default selection for the comparison."""

    source_site: str
    target_site: str
    source: str
    target: str
    link: str = ""
    """Empty for sites that were named by their brokers."""
    topic_whitelist: tuple[str, ...] = (".*",)
    topic_blacklist: tuple[str, ...] = DEFAULT_TOPIC_BLACKLIST


def sides_of_brokers(source: str, target: str) -> Sides:
    """Two sites that are named by their brokers alone, as host:port lists. Ends the command when a
    list is not usable.
    """
    for option, value in (("--source", source), ("--target", target)):
        try:
            parse_host_ports(value)
        except ValueError as error:
            raise usage_error(
                f"{option} {value!r} is not usable ({error}): give both, or --environment and --link"
            ) from error
    return Sides(source_site="source", target_site="target", source=source, target=target)


def sides_of_link(environment: Path | None, link: str) -> Sides:
    """The sites of a link of the environment file. An empty `link` is the only one there."""
    known = open_environment(needed_environment(environment))
    name = link or (known.links[0].name if len(known.links) == 1 else "")
    if not name:
        raise usage_error(
            f"--link is not given; accepted: {', '.join(one.name for one in known.links) or 'no link is there'}"
        )
    entry = known.link(name)
    record = asyncio.run(_link_record(known, name))
    return Sides(
        source_site=entry.source,
        target_site=entry.target,
        source=known.sites[entry.source].bootstrap_servers,
        target=known.sites[entry.target].bootstrap_servers,
        link=name,
        topic_whitelist=tuple(record.topic_whitelist),
        topic_blacklist=blacklist_of(record),
    )


async def check_sites_answer(sides: Sides) -> None:
    """Check that a broker of each site answers, before Spark starts: its start takes far longer
    than this check.
    """
    named = {sides.source_site: sides.source, sides.target_site: sides.target}
    found = await asyncio.gather(*(_problem_of(site, servers) for site, servers in named.items()))
    if problems := [problem for problem in found if problem]:
        raise OperationalFailure("; ".join(problems))


async def _problem_of(site: str, bootstrap_servers: str) -> str:
    from wire.client.client_errors import KafkaClientError
    from wire.client.connection import ConnectionOptions
    from wire.client.raw_client import KafkaClient

    options = ConnectionOptions(client_id="antipode-cli", request_timeout_ms=REQUEST_TIMEOUT_MS)
    brokers = parse_host_ports(bootstrap_servers)
    try:
        async with KafkaClient(brokers, options, retry_budget_ms=ANSWERED_WITHIN_MS) as client:
            asking = asyncio.ensure_future(client.metadata([]))
            if not (await asyncio.wait({asking}, timeout=REPORTED_AFTER_S))[0]:
                report_progress(f"waiting up to {ANSWERED_WITHIN_MS // 1000} s for site {site} at {bootstrap_servers}")
            await asking
    except KafkaClientError as error:
        return f"site {site}: no broker at {bootstrap_servers} answers ({error})"
    return ""


async def _link_record(environment: Environment, name: str) -> LinkRecord:
    """The link as the first site that answers has it: the filters are the same at both.
    OperationalFailure when none does.
    """
    from dr.links.administration import describe_link

    async with site_clients(environment.agents()) as clients:
        entries = await describe_link(name, list(clients.values()))
    for entry in entries:
        if entry.description is not None:
            return entry.description.record
    raise OperationalFailure("; ".join(entry.problem for entry in entries))
