"""The cells of the security matrix, and their page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.compatibility.cells import Outcome
from tests.compatibility.security.clients import SecuredClient
from tests.compatibility.security.credentials import Mechanism
from tests.compatibility.security.site import ALLOWED, DENIED, SecuredSite

RECORDS: Final = 20
_DENIAL: Final = re.compile("auth|permi|denied|29", re.IGNORECASE)
BEGIN: Final = """\
# Compatibility of logins

How other people's clients log in at Antipode. **This page is written by `make compatibility`**, which starts a secured site of one broker
(TLS, an authorizer, a user for each mechanism) and runs every client with every mechanism; no cell is edited by hand. The other
features are in [the matrix](compatibility.md).

A cell is *passed* where all of this held, each step over TLS:

- with right credentials the client writes 20 records to a topic that its ACLs allow, and reads them as a member of a group;
- with right credentials it writes to a topic that no ACL allows: the client reports the denial, and the topic stays empty;
- with wrong credentials (another password, a token signed by another key, a certificate of another authority) it reports an error, and
  nothing is written.
"""


def run_client(client: SecuredClient, site: SecuredSite) -> dict[str, Any]:
    """What became of every mechanism of a client, as the JSON file keeps it."""
    missing = client.missing()
    cells: dict[str, dict[str, str]] = {}
    for mechanism in Mechanism:
        if missing:
            cells[mechanism] = {"outcome": str(Outcome.NOT_RUN), "detail": missing}
            continue
        try:
            detail = _check(client, mechanism, site)
        except Exception as error:
            said = next(iter(str(error).splitlines()), "no message")
            cells[mechanism] = {"outcome": str(Outcome.FAILED), "detail": f"{type(error).__name__}: {said}"}
        else:
            cells[mechanism] = {"outcome": str(Outcome.PASSED), "detail": detail}
    return {"client": client.name, "version": client.version(), "cells": cells}


def _check(client: SecuredClient, mechanism: Mechanism, site: SecuredSite) -> str:
    servers, right = site.servers(mechanism), site.credentials(mechanism, is_right=True)
    topic = f"{ALLOWED}-{client.name}-{mechanism}".lower().replace(" ", "-")
    site.create_topic(topic)
    values = [f"{topic}-{number}".encode() for number in range(RECORDS)]
    client.produce(servers, topic, values, right)
    assert site.end(topic) == RECORDS, "not every record is in the log"
    found = client.consume(servers, topic, RECORDS, right)
    assert found == values, f"read {len(found)} records, or others than were written"
    denial = _complaint(lambda: client.produce(servers, DENIED, [b"denied"], right))
    assert _DENIAL.search(denial), f"a denial is reported as {denial!r}"
    wrong = site.credentials(mechanism, is_right=False)
    refusal = _complaint(lambda: client.produce(servers, topic, [b"wrong"], wrong))
    assert (site.end(DENIED), site.end(topic)) == (0, RECORDS), "what was refused was written"
    return f"denied: {_short(denial)}; wrong credentials: {_short(refusal)}"


def _complaint(attempt: Callable[[], None]) -> str:
    """What a client says of what it may not do. AssertionError when it says nothing."""
    try:
        attempt()
    except Exception as error:
        return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    raise AssertionError("what is refused was reported as done")


def _short(text: str) -> str:
    """The first line, without addresses and numbers that differ from run to run."""
    line = next(iter(text.splitlines()), "")
    line = re.sub(r"\[thrd:[^\]]*\]: |127\.0\.0\.1:\d+|\(after [^)]*\)|<[^>]*>|\b\d{4,}\b", "", line)
    line = re.sub(r"/tmp/\S+|^\[?[\d\-:,. ]+\]? ", "", line)
    return " ".join(line.split())[:160].replace("|", "\\|").replace("<", "&lt;")


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    text = [BEGIN, f"| client | version | {' | '.join(Mechanism)} |", "| --- " * (len(Mechanism) + 2) + "|"]
    for row in rows:
        outcomes = [row["cells"][mechanism]["outcome"] for mechanism in Mechanism]
        shown = [outcome if outcome == Outcome.PASSED else f"**{outcome}**" for outcome in outcomes]
        text.append(f"| {row['client']} | {row['version']} | {' | '.join(shown)} |")
    text.append("\n## What was seen\n")
    for row in rows:
        text.append(f"**{row['client']}** ({row['version']})\n")
        text += [f"- {mechanism}: {cell['outcome']}: {cell['detail']}" for mechanism, cell in row["cells"].items()]
        text.append("")
    return "\n".join(text).rstrip("\n") + "\n"
