"""Checks that brokers answer, before a command does anything else: Spark's start takes far longer
than the check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from cli.shared.failures import missing_topic
from cli.shared.output import report_progress
from runtime.addresses import parse_host_ports
from runtime.process import OperationalFailure

REQUEST_TIMEOUT_MS = 5_000
ANSWERED_WITHIN_MS = 20_000
"""As long as a command waits for a broker: a line that fails for a few seconds ends none."""
REPORTED_AFTER_S = 2.0


def check_brokers_answer(bootstrap_servers: str, topics: Sequence[str] = ()) -> None:
    """Raise OperationalFailure if no broker answers, or if one of the topics is not there."""
    if problem := asyncio.run(problem_of(bootstrap_servers, topics=topics)):
        raise OperationalFailure(problem)


async def problems_of_sites(sites: Mapping[str, str]) -> dict[str, str]:
    """The sites of which no broker answers, each with a sentence. `sites` has host:port lists by
    name.
    """
    found = await asyncio.gather(*(problem_of(servers, site) for site, servers in sites.items()))
    return {site: problem for site, problem in zip(sites, found, strict=True) if problem}


async def problem_of(bootstrap_servers: str, site: str = "", topics: Sequence[str] = ()) -> str:
    """A sentence if none of the brokers answers, or a topic is not there; else an empty text."""
    from wire.client.client_errors import KafkaClientError
    from wire.client.connection import ConnectionOptions
    from wire.client.raw_client import KafkaClient

    where = f"site {site}: " if site else ""
    try:
        brokers = parse_host_ports(bootstrap_servers)
    except ValueError as error:
        return f"{where}the brokers {bootstrap_servers!r} are not usable: {error}"
    options = ConnectionOptions(client_id="antipode-cli", request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        async with KafkaClient(brokers, options, retry_budget_ms=ANSWERED_WITHIN_MS) as client:
            asking = asyncio.ensure_future(client.metadata(topics))
            if not (await asyncio.wait({asking}, timeout=REPORTED_AFTER_S))[0]:
                report_progress(f"{where}waiting up to {ANSWERED_WITHIN_MS // 1000} s for {bootstrap_servers}")
            known = (await asking).topics
    except KafkaClientError as error:
        return (
            f"{where}no broker at {bootstrap_servers} answers ({error}): is it running, is the address right, and does "
            "security.protocol of --command-config fit this listener?"
        )
    missing = [name for name in topics if name not in known or known[name].error_code]
    return str(missing_topic(*missing)) if missing else ""
