"""`antipode status`: shows the state of sites, links and mirrors, once or repeatedly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live

from cli.administration.status_page import status_page
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json
from cli.shared.sites import EnvironmentFile, SiteOptions, agents, environment_file, open_environment
from mirror.flow.core.health import HEALTHY_STATES
from runtime.process import ExitCode
from wire.protocol.ids import NO_NODE

if TYPE_CHECKING:
    from dr.drill.environment import Environment, EnvironmentLink
    from dr.drill.lag import LagSample
    from dr.links.administration import LinkAtSite
    from dr.sites.channels import Channels
    from dr.sites.site_client import SiteClient
    from wire.control.cluster_pb2 import LinkRecord
    from wire.control.controller_pb2 import DescribeControllerReply

VERDICT_COUNTS_MS = 120_000
"""The maximum age (ms) of the active site's verdict on a link's protection; its agents store one at
least every twenty seconds.
"""
CONTROLLER_TIMEOUT_MS = 1_000
MIRROR_TIMEOUT_S = 3.0
"""The timeout (s) for a mirror, the same as for a site: a slow mirror is not a missing one."""


def status(
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_watched: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval_ms: Annotated[int, typer.Option(help="Interval of --watch.", min=100)] = 1_000,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the state of sites and links: the brokers and the controller of each site, and for each
    link the active site and the lag of the other one.

    Exit code 1 when something needs a person: a site that does not answer, a partition without a
    leader, a link in trouble.

    Example: antipode status --environment out/sites/environment.json --watch
    """
    if is_watched and output is OutputFormat.JSON:
        raise usage_error("--watch and --output json exclude each other: run it again for another look")
    with failures_as_messages():
        known = known_places(environment, site)
        if is_watched:
            asyncio.run(_watch(known, interval_ms))
            return
        document = asyncio.run(look(known))
    if output is OutputFormat.JSON:
        print_json(document)
    else:
        console.print(status_page(document))
    raise typer.Exit(ExitCode.FAILED if document["problems"] else ExitCode.DONE)


def known_places(file: Path | None, site: list[str] | None) -> Environment:
    """All known addresses: the file's, and those of --site over them."""
    from dr.drill.environment import Environment, EnvironmentSite

    found = environment_file(file) if file is not None or not site else None
    known = open_environment(found) if found is not None else Environment(sites={})
    unknown = EnvironmentSite(bootstrap_servers="", grpc=(), processes=())
    sites = {
        name: known.sites.get(name, unknown).model_copy(update={"grpc": addresses})
        for name, addresses in agents(file, site).items()
    }
    return known.model_copy(update={"sites": sites})


async def _watch(known: Environment, interval_ms: int) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(status_page(await look(known)), refresh=True)
            await asyncio.sleep(interval_ms / 1000)


async def look(known: Environment) -> dict[str, Any]:
    """Sites, links and what is wrong with them, as `--output json` prints it."""
    from dr.links.administration import list_links
    from dr.sites.channels import Channels
    from dr.sites.site_client import SiteClient

    channels = Channels()
    try:
        clients = [SiteClient(name, addresses, channels) for name, addresses in known.agents().items()]
        sites = dict(zip(known.sites, await asyncio.gather(*(_site(client) for client in clients)), strict=True))
        entries = await list_links(clients)
        links = await asyncio.gather(*(_link(known, link, channels, entries) for link in _links(known, entries)))
        deposed = await _deposed(clients, entries)
    finally:
        await channels.close()
    for link in links:
        link["deposed"] = deposed.get(link["name"], [])
        link["lost_at"] = _lost_at(link, sites, entries)
    return {"sites": sites, "links": links, "problems": problems(sites, links)}


async def _site(client: SiteClient) -> dict[str, Any]:
    from runtime.process import OperationalFailure

    try:
        found = await client.look()
    except OperationalFailure as failure:
        return {"is_reachable": False, "problem": str(failure)}
    view = found.view
    described = await _controller(client.agents)
    return {
        "is_reachable": True,
        "brokers": sorted(broker.node_id for broker in view.brokers),
        "controller": view.controller_id,
        "cluster_id": view.cluster_id,
        "quarantines": [
            {"kind": kind, "name": name, "problem": problem}
            for (kind, name), problem in sorted(
                {
                    **{(one.kind, one.name): one.problem for one in found.unreadable},
                    **{(one.kind, one.name): one.problem for one in described.quarantines},
                }.items()
            )
        ],
        "waiting_deletions": [
            {"topic": one.topic, "absent_brokers": list(one.absent_brokers)}
            for one in described.deletions
            if one.absent_brokers
        ],
        "unregistered_brokers": list(described.unregistered_brokers),
    }


async def _controller(addresses: Sequence[str]) -> DescribeControllerReply:
    """The description of the site's active controller; empty when no process of the site leads to
    it.
    """
    from wire.control.clients import ControllerClient, ControllerUnavailable
    from wire.control.controller_pb2 import DescribeControllerReply

    for address in addresses:
        client = ControllerClient(lambda address=address: [address], timeout_ms=CONTROLLER_TIMEOUT_MS)  # type: ignore[misc]
        try:
            return await client.describe_controller()
        except ControllerUnavailable:
            # this broker is no controller candidate, or the site has no controller, which
            # `problems` reports
            continue
        finally:
            await client.close()
    return DescribeControllerReply()


async def _deposed(clients: Sequence[SiteClient], entries: Sequence[LinkAtSite]) -> dict[str, list[str]]:
    """The statements of other links against each link's active site, by link, as that site itself
    knows them.
    """
    from dr.sites.core.link_checks import deposed_problems
    from runtime.process import OperationalFailure
    from wire.rules.links import other_site

    found: dict[str, list[str]] = {}
    for client in clients:
        records = [one.status.record for one in entries if one.site == client.name and one.status is not None]
        for record in records:
            if record.active_site == client.name and len(records) > 1:
                try:
                    view = await client.view(asking_site=other_site(record, client.name))
                except OperationalFailure:
                    continue  # `problems` already reports a site that does not answer
                found[record.name] = deposed_problems(
                    record, links=records, topics=[topic.name for topic in view.topics]
                )
    return found


def _lost_at(link: dict[str, Any], sites: dict[str, dict[str, Any]], entries: Sequence[LinkAtSite]) -> list[str]:
    """The ends of the link that answer and do not know it, while the other end does."""
    knowing = {one.site for one in entries if one.status is not None and one.status.record.name == link["name"]}
    ends = (link["source"], link["target"])
    return [site for site in ends if knowing and site not in knowing and sites[site]["is_reachable"]]


def _links(known: Environment, entries: list[Any]) -> list[EnvironmentLink]:
    from dr.drill.environment import EnvironmentLink
    from wire.rules.links import supersedes

    records: dict[str, LinkRecord] = {}
    for record in (entry.status.record for entry in entries if entry.status is not None):
        if record.name not in records or supersedes(record, records[record.name]):
            records[record.name] = record
    found = {link.name: link for link in known.links}
    # The records come last: the ends of a link change when its standby follows another site.
    found.update(
        {
            name: EnvironmentLink(name=name, source=one.source_site, target=one.target_site)
            for name, one in records.items()
        }
    )
    return [found[name] for name in sorted(found) if {found[name].source, found[name].target} <= known.sites.keys()]


async def _link(
    known: Environment, link: EnvironmentLink, channels: Channels, entries: Sequence[LinkAtSite]
) -> dict[str, Any]:
    from dr.drill.lag import LagProbe
    from dr.sites.core.quarantine_sentences import quarantine_problem, quarantine_sentence
    from runtime.clock import SystemClock

    seen = known.model_copy(update={"links": (link,)})
    said = [one for one in entries if one.status is not None and one.status.record.name == link.name]
    probe = LagProbe(seen, link.name, channels, SystemClock())
    sample: LagSample = await probe.sample(mirror_timeout_s=MIRROR_TIMEOUT_S)
    unprotected = not_protected_because(sample, now_ms=SystemClock().now_ms())
    has_mirrors = bool(known.mirrors_of(link.name))
    return {
        "name": link.name,
        "source": link.source,
        "target": link.target,
        "active_site": sample.active_site,
        "epoch": sample.epoch,
        "sync": sample.sync_policy,
        "suspended_sync": sample.suspended_sync_policy,
        "lag_records": sample.lag_records,
        "copyable_records": sample.copyable_records,
        "lag_bytes": None if sample.lag_bytes < 0 else sample.lag_bytes,
        "lag_ms": None if sample.lag_ms < 0 else sample.lag_ms,
        "truncated_records": sample.truncated_records,
        "differing": list(sample.differing),
        "quarantines": [quarantine_sentence(at, use) for at, use in sample.quarantines],
        "quarantine_problems": [problem for at, use in sample.quarantines if (problem := quarantine_problem(at, use))],
        "protected_since_ms": sample.protection.since_ms if sample.protection and not unprotected else None,
        "not_protected_because": unprotected,
        **_proof(sample),
        "mirror": sample.mirror_state if has_mirrors else "not known",
        "mirror_reason": sample.mirror_reason,
        "resting_mirror": sample.resting_mirror_state if has_mirrors else "not known",
        "mirror_report_age_ms": next(
            (one.mirror_report_age_ms for one in said if one.mirror_report_age_ms is not None), None
        ),
        "mirror_problems": [problem for one in said for problem in one.mirror_problems],
        "is_contested": any(one.status.contested_by for one in said if one.status is not None),
        "following": _following(said),
        **_lease(said),
    }


def _following(said: Sequence[LinkAtSite]) -> str:
    """How the link's standby follows other sites, by its own record; empty if it does not answer,
    or if the active site has no other standby.
    """
    from dr.sites.core.following_sentences import following_sentence

    at_standby = (one.status.record for one in said if one.status and one.status.record.active_site != one.site)
    return next((following_sentence(record) for record in at_standby), "")


def _lease(said: Sequence[LinkAtSite]) -> dict[str, Any]:
    """The lease of the link: who decides which site writes, the problems that each answering site
    sees, and the standby's verdict on the active site.
    """
    from dr.sites.core.lease_sentences import lease_problem, lease_sentence

    found = [(one.site, one.status) for one in said if one.status is not None]
    leased = [(site, status) for site, status in found if status.HasField("lease")]
    verdicts = [status.lease.failover_verdict for _, status in leased if status.lease.failover_verdict]
    return {
        "lease": lease_sentence(found[0][1].record) if found else "",
        "lease_problems": [
            problem for site, status in leased if (problem := lease_problem(status.record, site, status.lease))
        ],
        "failover_verdict": next(iter(verdicts), None),
    }


def _proof(sample: LagSample) -> dict[str, Any]:
    """Return the time until which both sites are proven equal in this epoch of the link, and the
    differences; None before the first proof.
    """
    proof = sample.proof
    if proof is None or proof.epoch != sample.epoch:
        return {
            "verified_until_ms": None,
            "differences": None,
            "first_difference": "",
            "not_proven_because": "",
            "not_covered_by_proof": "",
        }
    return {
        "verified_until_ms": proof.verified_until_ms or None,
        "differences": proof.differences,
        "first_difference": proof.reason if proof.differences else "",
        "not_proven_because": "" if proof.differences else proof.reason,
        "not_covered_by_proof": proof.not_covered,
    }


def not_protected_because(sample: LagSample, *, now_ms: int) -> str:
    """The reason why the link's standby does not protect the active site; empty when it does."""
    verdict = sample.protection
    if not sample.active_site:
        return "neither site knows which one is active"
    if sample.active_site in sample.unreachable:
        return f"{sample.active_site}, the active site, does not answer"
    if verdict is None or verdict.epoch != sample.epoch:
        return f"{sample.active_site} has not judged it yet in epoch {sample.epoch}: its agents look every few seconds"
    if now_ms - verdict.judged_at_ms > VERDICT_COUNTS_MS:
        return f"the last verdict of {sample.active_site} is {(now_ms - verdict.judged_at_ms) // 1000} s old"
    return verdict.reason


def problems(sites: dict[str, dict[str, Any]], links: list[dict[str, Any]]) -> list[str]:
    """The conditions that need an operator, one sentence each."""
    from dr.sites.core.link_checks import lost_link_problem

    found = [site["problem"] for site in sites.values() if not site["is_reachable"]]
    for name, site in sites.items():
        if site["is_reachable"] and site["controller"] == NO_NODE:
            found.append(f"site {name} has no controller")
        found += [
            f"site {name}: {one['kind']} {one['name']}".rstrip()
            + f" is in quarantine until ZooKeeper is mended: {one['problem']}"
            for one in site.get("quarantines", ())
        ]
        for one in site.get("waiting_deletions", ()):
            nodes = ", ".join(map(str, one["absent_brokers"]))
            found.append(
                f"site {name}: the deletion of topic {one['topic']} waits for brokers {nodes}; if one will not "
                f"return, unregister it: antipode brokers unregister ID"
            )
    for link in links:
        if link["mirror"] not in (*HEALTHY_STATES, "not known"):
            why = f": {link['mirror_reason']}" if link["mirror_reason"] else ""
            found.append(f"link {link['name']}: the mirror is {link['mirror']}{why}")
        reason = link["not_protected_because"]
        if reason:
            found.append(f"link {link['name']}: not protected because {reason}")
        if link["differences"]:
            found.append(
                f"link {link['name']}: the sites differ in {link['differences']} ranges of offsets, first "
                f"{link['first_difference']}; antipode reconcile --link {link['name']} --quick names them"
            )
        if link["not_proven_because"]:
            found.append(f"link {link['name']}: the sites are not proven equal: {link['not_proven_because']}")
        found += [f"link {link['name']}: {problem}" for problem in link["lease_problems"]]
        others = (*link["mirror_problems"], *link["differing"], *link["deposed"], *link["quarantine_problems"])
        found += [f"link {link['name']}: {problem}" for problem in others if problem not in reason]
        found += [lost_link_problem(link["name"], site=site) for site in link.get("lost_at", ())]
        if link["is_contested"]:
            found.append(f"link {link['name']}: both sites report that they are active in epoch {link['epoch']}")
    return found
