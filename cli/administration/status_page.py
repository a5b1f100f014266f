"""The page of `antipode status`: sites, links, and one line for each fact and problem."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from runtime.times import iso_time


def status_page(document: dict[str, Any]) -> Group:
    """The tables and lines for a person, from the document that `--output json` prints."""
    sites = Table("site", "brokers", "controller", "cluster id", header_style="bold")
    for name, site in document["sites"].items():
        if site["is_reachable"]:
            brokers = ", ".join(map(str, site["brokers"]))
            sites.add_row(name, brokers, str(site["controller"]), site["cluster_id"])
        else:
            sites.add_row(name, "[red]no answer[/]", "", "")
    links = Table(
        "link",
        "from",
        "to",
        "active",
        "epoch",
        "sync",
        "records behind",
        "copyable",
        "bytes behind",
        "ms behind",
        "records truncated",
        "mirror",
        "idle mirror",
        header_style="bold",
    )
    for link in document["links"]:
        links.add_row(
            link["name"],
            link["source"],
            link["target"],
            link["active_site"] or "none",
            str(link["epoch"]),
            f"{link['sync']} ({link['suspended_sync']} suspended)" if link["suspended_sync"] else link["sync"],
            _count(link["lag_records"]),
            _count(link["copyable_records"]),
            _count(link["lag_bytes"]),
            _count(link["lag_ms"]),
            _count(link["truncated_records"]),
            link["mirror"],
            link["resting_mirror"],
        )
    unasked = sorted(link["name"] for link in document["links"] if link["mirror"] == "not known")
    well = "[green]all is well[/]"
    if unasked:
        well += f" by the sites' reports; for the mirror of {escape(', '.join(unasked))}: links status LINK --mirror HOST:PORT"
    reported = [f"[red]problem:[/] {escape(problem)}" for problem in document["problems"]] or [well]
    protected = [
        f"link {escape(link['name'])}: protected since {iso_time(link['protected_since_ms'])}"
        for link in document["links"]
        if link["protected_since_ms"] is not None
    ]
    verified = [sentence for link in document["links"] if (sentence := _proof(link))]
    leases = [f"link {escape(link['name'])}: {escape(link['lease'])}" for link in document["links"] if link["lease"]]
    verdicts = [
        f"link {escape(link['name'])}: {escape(link['failover_verdict'])}"
        for link in document["links"]
        if link["failover_verdict"]
    ]
    followings = [
        f"link {escape(link['name'])}: {escape(link['following'])}" for link in document["links"] if link["following"]
    ]
    return Group(
        sites, links, *followings, *leases, *verdicts, *protected, *verified, *_quarantines(document), *reported
    )


def _proof(link: dict[str, Any]) -> str:
    """The time until which the sites are proven equal, with the topics that the proof leaves out;
    empty without both.
    """
    left_out = link["not_covered_by_proof"]
    if link["verified_until_ms"] is None:
        return f"link {escape(link['name'])}: no digests compare {escape(left_out)}" if left_out else ""
    apart = f", apart from {escape(left_out)}" if left_out else ""
    return (
        f"link {escape(link['name'])}: both sites are proven equal until {iso_time(link['verified_until_ms'])}{apart}"
    )


def _quarantines(document: dict[str, Any]) -> list[str]:
    return [
        f"link {escape(link['name'])}: {escape(sentence)}"
        for link in document["links"]
        for sentence in link["quarantines"]
    ]


def _count(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"
