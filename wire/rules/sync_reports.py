"""Reports of a link's mirror daemons on groups' offsets, each of its own part of the link, and
their result for the whole link.

A link has `MIRROR_SLOTS` parts, which the daemons that share it divide among themselves
(`mirror/link/core/slots.py`); a single daemon has all. The link is as stale as its stalest part,
and one failing daemon makes the link failing. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from wire.protocol.json_documents import parse_json
from wire.rules.access_digests import AccessDigests

MIRROR_SLOTS: Final = 240
"""Divisible by 1 to 6, 8, 10 and 12, so that so many daemons share evenly."""

ALL_SLOTS: Final = frozenset(range(MIRROR_SLOTS))

REPORT_COUNTS_MS: Final = 10_000
"""Time (ms) for which a daemon's report counts after another daemon has reported the same parts;
daemons report each round.
"""

NEVER: Final = -1
"""The age of a part that no daemon has reported as carried."""

PROBLEMS_REPORTED: Final = 10
REASON_LENGTH_MAX: Final = 200


class CarriedAccess(NamedTuple):
    """The access rules that a daemon has carried. `digests`: those of each part as the source had
    it when the daemon last carried all of it. `round_ms_ago`: how long ago the last round began
    that carried every part; None without such a round.
    """

    digests: AccessDigests
    round_ms_ago: int | None


class SyncReport(Struct, frozen=True, kw_only=True):
    """One daemon's report. `synced_at_ms` (Unix ms, by a clock that may be wrong): the time up to
    which it has carried all offsets of these parts, 0 if it has not carried all; `synced_ms_ago`
    how long before the report that was.
    """

    daemon: str = ""
    slots: frozenset[int] = ALL_SLOTS
    synced_at_ms: int = 0
    # None from mirrors of earlier releases, which do not report it.
    synced_ms_ago: int | None = None
    # Groups (and brokers that do not list theirs) whose offsets it cannot carry, and why.
    problems: Mapping[str, str] = field(default_factory=dict)
    # It writes nothing, because the site that it would write to is the active one.
    is_resting: bool = False
    # None from daemons that carry no access rules, and from mirrors of earlier releases.
    access: CarriedAccess | None = None


class ReceivedReport(NamedTuple):
    """A daemon's last report, and how long ago it was received."""

    daemon: str
    slots: frozenset[int]
    problems: Mapping[str, str]
    received_ms_ago: float
    access: CarriedAccess | None = None


class LinkSyncReports(NamedTuple):
    """The reports' result for the link: how long ago all was carried (None: not known of all
    parts), and the failing daemons' reports.
    """

    synced_ms_ago: int | None
    failing: tuple[ReceivedReport, ...]


def encode_report(report: SyncReport) -> str:
    """A report except its time, as a MirrorOffsetCommit without a group carries it
    (`wire/protocol/messages/private.py`).
    """
    problems = {
        name: reason[:REASON_LENGTH_MAX] for name, reason in islice(sorted(report.problems.items()), PROBLEMS_REPORTED)
    }
    document = {
        "daemon": report.daemon,
        "slots": f"{sum(1 << slot for slot in report.slots):x}",
        "problems": problems,
        "synced_ms_ago": report.synced_ms_ago,
        "is_resting": report.is_resting,
        "access": None if report.access is None else report.access._asdict(),
    }
    return json.dumps(document, separators=(",", ":"))


def decode_report(text: str | None, *, synced_at_ms: int) -> SyncReport:
    """The report; mirrors of earlier releases report only a time, and have all parts. ValueError
    for anything else.
    """
    if not text:
        return SyncReport(synced_at_ms=synced_at_ms)
    try:
        document = parse_json(text)
        bits = int(document["slots"], 16)
        problems = {str(name): str(reason) for name, reason in document["problems"].items()}
        slots = frozenset(slot for slot in ALL_SLOTS if bits >> slot & 1)
        ago = document["synced_ms_ago"]
        return SyncReport(
            daemon=str(document["daemon"]),
            slots=slots,
            synced_at_ms=synced_at_ms,
            synced_ms_ago=None if ago is None else int(ago),
            problems=problems,
            is_resting=bool(document.get("is_resting", False)),
            access=_access(document.get("access")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a mirror's report: {error!r}") from error


def _access(document: Mapping[str, Any] | None) -> CarriedAccess | None:
    if document is None:
        return None
    digests = {str(part): str(digest) for part, digest in document["digests"].items()}
    ago = document["round_ms_ago"]
    return CarriedAccess(digests, None if ago is None else int(ago))


def newest_report_by_daemon(reports: Iterable[ReceivedReport]) -> dict[str, ReceivedReport]:
    """The newest report of each daemon, from those that several brokers received."""
    found: dict[str, ReceivedReport] = {}
    for report in reports:
        if report.daemon not in found or report.received_ms_ago < found[report.daemon].received_ms_ago:
            found[report.daemon] = report
    return found


def counting(reports: Collection[ReceivedReport]) -> list[ReceivedReport]:
    """The reports that count, at most one from each daemon: recent ones, and older ones with a part
    that no other daemon has reported since.
    """
    return [
        report
        for report in reports
        if report.received_ms_ago <= REPORT_COUNTS_MS or report.slots - _reported_after(report, reports)
    ]


def _reported_after(report: ReceivedReport, reports: Iterable[ReceivedReport]) -> frozenset[int]:
    return frozenset().union(*(one.slots for one in reports if one.received_ms_ago < report.received_ms_ago))


def link_sync_reports(ages_ms: Iterable[Sequence[int]], reports: Iterable[ReceivedReport]) -> LinkSyncReports:
    """The link's account; `ages_ms` is how long ago each broker knows each part to have been
    carried whole, NEVER where it does not.
    """
    youngest = [
        min((age_ms for age_ms in ages if age_ms != NEVER), default=None) for ages in zip(*ages_ms, strict=True)
    ]
    known = [age_ms for age_ms in youngest if age_ms is not None]
    failing = [report for report in counting(list(newest_report_by_daemon(reports).values())) if report.problems]
    is_known = bool(known) and len(known) == len(youngest)
    return LinkSyncReports(max(known) if is_known else None, tuple(sorted(failing, key=lambda report: report.daemon)))
