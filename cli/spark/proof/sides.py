"""The two sites of a comparison: finds them by brokers or by link, and checks that they answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.shared.brokers import problems_of_sites
from cli.shared.failures import usage_error
from cli.shared.sites import needed_environment, open_environment, site_clients
from runtime.addresses import parse_host_ports
from runtime.process import OperationalFailure
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, blacklist_of

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from wire.control.cluster_pb2 import LinkRecord


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
    """Check that a broker of each site answers, before Spark starts."""
    problems = await problems_of_sites({sides.source_site: sides.source, sides.target_site: sides.target})
    if problems:
        raise OperationalFailure("; ".join(problems.values()))


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
