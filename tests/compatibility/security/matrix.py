"""The cells of the security matrix, and their page."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.compatibility.cells import Outcome
from tests.compatibility.security.credentials import Credentials, Mechanism
from tests.compatibility.security.secured_client import SecuredClient
from tests.compatibility.security.site import ALLOWED, DENIED, SecuredSite

RECORDS: Final = 20
COMMITTED: Final = 5
_DENIAL: Final = re.compile(r"authoriz|\b(29|30|53)\b", re.IGNORECASE)
"""A denial by its text or by Kafka's error code for topics, groups, and transactional ids."""
_OTHER_DENIALS: Final = dict.fromkeys(
    [("KafkaJS", "group"), ("KafkaJS", "transaction")], "KafkaJSGroupCoordinatorNotFound"
)
"""Denials that a client reports in other terms. KafkaJS has one error for each failed search for a
coordinator.
"""
BEGIN: Final = """\
# Compatibility of logins

How other people's clients log in at Antipode, and what they say of what they may not do. **This page is written by
`make compatibility`**, which starts a secured site of one broker (TLS, an authorizer, a user for each mechanism) and runs every client
with every mechanism, or by `python -m tests.compatibility.security --only CLIENT --update`, which replaces the rows of one client. The
rows of one page may come from several runs. The other features are in [the matrix](compatibility.md).

A cell is *passed* where all of this held, each step over TLS:

- with right credentials the client does what its ACLs allow: it writes 20 records to a topic, reads them as a member of a group,
  commits five more in a transaction, and makes a topic;
- with right credentials it tries each of these where no ACL allows it (another topic, another group, another transactional id, a topic
  of another name): the client reports each denial, and no record and no topic comes of it;
- with wrong credentials (another password, a token signed by another key, a certificate of another authority) it reports an error, and
  nothing is written.

Some clients report less than the broker sends. For the reason that a token is invalid, a broker answers the client's first message with
JSON and without an error code, as Apache Kafka does (RFC 7628): aiokafka and KafkaJS report a closed connection, franz-go unexpected
data. kafka-python tries a refused login again until the time for its bootstrap is over. KafkaJS reports a denied group or
transactional id as a coordinator that it cannot find. Java's console consumer reports a denied group in its log alone.
"""


class NothingReported(Exception):
    """A client was refused, and its caller cannot know."""


def run_client(client: SecuredClient, site: SecuredSite) -> dict[str, Any]:
    """The outcome of every mechanism of a client, as the JSON file keeps it."""
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
    client.commit(servers, topic, topic, values[:COMMITTED], right)
    # with the marker of the commit
    end = RECORDS + COMMITTED + 1
    assert site.end(topic) == end, "not every record of the transaction is in the log"
    client.make_topic(servers, f"{topic}-made", right)
    assert site.has_topic(f"{topic}-made"), "the topic was reported as made"
    denials = {
        "write": _complaint(lambda: client.produce(servers, DENIED, [b"denied"], right)),
        "group": _complaint(lambda: _read_something(client, servers, topic, right)),
        "transaction": _complaint(lambda: client.commit(servers, topic, DENIED, [b"denied"], right)),
        "admin": _complaint(lambda: client.make_topic(servers, f"{DENIED}-{topic}", right)),
    }
    for what, denial in denials.items():
        other = _OTHER_DENIALS.get((client.name, what))
        is_named = _DENIAL.search(denial) or (other is not None and other in denial)
        assert is_named, f"a denied {what} is reported as {denial!r}"
    assert not site.has_topic(f"{DENIED}-{topic}"), "a denied topic was made"
    wrong = site.credentials(mechanism, is_right=False)
    refusal = _complaint(lambda: client.produce(servers, topic, [b"wrong"], wrong))
    assert (site.end(DENIED), site.end(topic)) == (0, end), "what was refused was written"
    shown = "; ".join(f"denied {what}: {_short(denial)}" for what, denial in denials.items())
    return f"{shown}; wrong credentials: {_short(refusal)}"


def _read_something(client: SecuredClient, servers: str, topic: str, credentials: Credentials) -> None:
    """By a group that no ACL allows. A client that reads nothing has not reported the denial."""
    found = client.consume(servers, topic, 1, credentials, group=DENIED)
    raise NothingReported(f"{len(found)} records were read, without an error")


def _complaint(attempt: Callable[[], None]) -> str:
    """A client's report of a denied operation. Raises AssertionError if there is none."""
    try:
        attempt()
    except NothingReported:
        raise
    except Exception as error:
        return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    raise AssertionError("what is refused was reported as done")


def _short(text: str) -> str:
    """The first line, without addresses and numbers that differ from run to run."""
    line = next(iter(text.splitlines()), "")
    line = re.sub(r"\[thrd:[^\]]*\]: |127\.0\.0\.1:\d+|\(after [^)]*\)|<[^>]*>|\b\d{4,}\b", "", line)
    # OpenSSL's errors begin with the id of a thread
    line = re.sub(r"/tmp/\S+|^\[?[\d\-:,. ]+\]? |\b[0-9A-F]{16}:(?=error:)", "", line)
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
