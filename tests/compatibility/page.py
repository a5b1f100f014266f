"""The matrix as a page. Pure: from the JSON document to Markdown, the same text for the same outcomes."""

from __future__ import annotations

from typing import Any

BEGIN = """\
# Compatibility

What other people's clients do at a site of three Antipode brokers. **This page is written by `make compatibility`**, which starts the site,
runs every client, and writes here and into `docs/compatibility.json` what came of it; nobody edits a cell. A check compares content,
order and offsets, not exit codes: what a client wrote is read from the leader's log by our batch reader, what it read was written by that.

A cell is *passed*, *failed* with the client's complaint below, or *not offered* where the client has no such feature. It is *not run*
where the machine lacks what the client needs (Go, npm, Maven, kcat); `make setup-clients` fetches and builds all that it can.
"""
SEEN = """
## What was seen
"""
END = """
## What is not in it

Share groups (KIP-932) and Streams' own group protocol (KIP-1071), which the broker does not have; security, which it does not have yet.
confluent-kafka-javascript: its library is fetched from outside the package registry when it is installed.
"""


def render(document: dict[str, Any]) -> str:
    """The whole page."""
    columns = document["columns"]
    lines = [BEGIN, f"| client | version | {' | '.join(columns)} |", "| --- " * (len(columns) + 2) + "|"]
    for row in document["rows"]:
        outcomes = [_shown(row["cells"][column]["outcome"]) for column in columns]
        lines.append(f"| {row['client']} | {row['version']} | {' | '.join(outcomes)} |")
    lines.append(SEEN)
    for row in document["rows"]:
        lines.append(f"**{row['client']}** ({row['version']})\n")
        lines += [_seen(column, row["cells"][column]) for column in columns]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n" + END


def _shown(outcome: str) -> str:
    return outcome if outcome in ("passed", "not offered") else f"**{outcome}**"


def _seen(column: str, cell: dict[str, str]) -> str:
    detail = cell["detail"].replace("|", "\\|").replace("<", "&lt;")
    return f"- {column}: {_shown(cell['outcome'])}: {detail}"
