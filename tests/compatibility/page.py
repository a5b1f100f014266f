"""The matrix as a page. Pure: from the JSON document to Markdown, the same text for the same
outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.compatibility.cells import BASICS

BEGIN = """\
# Compatibility

What other people's clients do at Antipode. **This page is written by `make compatibility`**, which starts the sites, runs every client in
every environment, and writes here and into `docs/compatibility.json` what came of it; no cell is edited by hand. A check compares content,
order and offsets, not exit codes: what a client wrote is read from the leader's log by our batch reader, what it read was written by that.

| environment | what it is |
| --- | --- |
| lone broker | one broker of one site |
| three brokers | one site of three brokers, topics of three replicas |
| routed pair | two sites of a broker each with a routed link between them; clients are given the brokers of both sites |
| standby of the pair | the same pair; clients are given the broker of the passive site alone, and find everything through it |

A cell is *passed* where it passed in every environment in which it was tried, *failed* with the client's complaint below, or *not offered*
where the client has no such feature. It is *not run* where the machine lacks what the client needs (Go, npm, Maven, kcat); `make
setup-clients` fetches and builds all that it can. Streams, Connect and Spark take minutes: they are tried at three brokers and at the
standby alone.
"""
FEATURES = """
## Single features

Each is asked of the clients that have the call for it and of which a check was written; a dot says that there is none.
"""
SEEN = """
## What was seen

Where nothing else is said, in every environment of the row.
"""
END = """
## Where a pair differs from one cluster

- A copy that the passive site keeps of a topic that was deleted is no topic for clients. A second deletion of the name, sent to the
  passive site, deletes the copy and is answered without an error, where one cluster answers UNKNOWN_TOPIC_OR_PARTITION: mirrors delete
  nothing by themselves.
- Quotas, defaults for all brokers (an empty broker name), log levels and reassignments are each site's own: they are set at the brokers
  of the site that is asked.
- While the sites cannot reach each other, a change is answered after one second at most, and the other site learns of it when it is back.

## What is not in it

Share groups (KIP-932) and Streams' own group protocol (KIP-1071), which the broker does not have. Logins have
[a page of their own](compatibility-security.md).
confluent-kafka-javascript: its library is fetched from outside the package registry when it is installed.
"""


def render(document: dict[str, Any]) -> str:
    """The whole page."""
    basics = [column for column in document["columns"] if column in BASICS]
    features = [column for column in document["columns"] if column not in BASICS]
    lines = [BEGIN, *_table(document["rows"], basics), FEATURES, *_table(document["rows"], features), SEEN]
    for row in document["rows"]:
        lines.append(f"**{row['client']}** ({row['version']})\n")
        for column in document["columns"]:
            if column in row["cells"]:
                lines += _seen(column, row["cells"][column])
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n" + END


def _table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """The rows that have any of the columns."""
    yield f"| client | version | {' | '.join(columns)} |"
    yield "| --- " * (len(columns) + 2) + "|"
    for row in rows:
        if any(column in row["cells"] for column in columns):
            outcomes = [
                _shown(row["cells"][column]["outcome"]) if column in row["cells"] else "·" for column in columns
            ]
            yield f"| {row['client']} | {row['version']} | {' | '.join(outcomes)} |"


def _shown(outcome: str) -> str:
    return outcome if outcome in ("passed", "not offered") else f"**{outcome}**"


def _seen(column: str, cell: dict[str, Any]) -> Iterator[str]:
    """One line, or one for each group of environments in which the same was seen."""
    if "environments" not in cell:
        yield _line(column, cell["outcome"], cell["detail"])
        return
    same: dict[tuple[str, str], list[str]] = {}
    for environment, found in cell["environments"].items():
        same.setdefault((found["outcome"], found["detail"]), []).append(environment)
    for (outcome, detail), environments in same.items():
        where = "" if len(same) == 1 else f" ({', '.join(environments)})"
        yield _line(f"{column}{where}", outcome, detail)


def _line(of: str, outcome: str, detail: str) -> str:
    escaped = detail.replace("|", "\\|").replace("<", "&lt;")
    return f"- {of}: {_shown(outcome)}: {escaped}"
