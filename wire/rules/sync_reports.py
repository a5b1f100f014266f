"""What the daemons of a link's mirror say of groups' offsets, each of its own part of the link, and
what that means for the whole link.

A link has `MIRROR_SLOTS` parts, which the daemons that share it have between them
(`mirror/link/core/slots.py`); one that is alone has all. The link is as old as its oldest part, and
fails for as long as one daemon fails: nobody's good word hides another one's bad one. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from wire.protocol.json_documents import parse_json

MIRROR_SLOTS: Final = 240
"""Divisible by 1 to 6, 8, 10 and 12, so that so many daemons share evenly."""

ALL_SLOTS: Final = frozenset(range(MIRROR_SLOTS))

REPORT_COUNTS_MS: Final = 10_000
"""For how long a daemon's word counts although another one has told of the same parts since: they
tell each round.
"""

NEVER: Final = -1
"""The age of a part that nobody is known to have carried whole."""

PROBLEMS_REPORTED: Final = 10
REASON_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What one daemon says. `synced_at_ms` (Unix ms, by a clock that may be wrong): as of when it
    has carried all of these parts' offsets, 0 when it has not; `synced_ms_ago` how long that was
    before it said so.
    """

    daemon: str = ""
    slots: frozenset[int] = ALL_SLOTS
    synced_at_ms: int = 0
    # None from mirrors of earlier releases, which do not say it.
    synced_ms_ago: int | None = None
    # Groups (and brokers that do not tell theirs) whose offsets it cannot carry, and why.
    problems: Mapping[str, str] = field(default_factory=dict)


class ReceivedReport(NamedTuple):
    """The last word of a daemon, and how long ago somebody heard it."""

    daemon: str
    slots: frozenset[int]
    problems: Mapping[str, str]
    received_ms_ago: float


class LinkSyncReports(NamedTuple):
    """What the words mean for the link: how long ago all was carried (None: not known of all
    parts), and who fails at it.
    """

    synced_ms_ago: int | None
    failing: tuple[ReceivedReport, ...]


def encode_report(word: SyncReport) -> str:
    """A word but for its time, as a MirrorOffsetCommit without a group carries it
    (`wire/protocol/private.py`).
    """
    problems = {
        name: reason[:REASON_LENGTH_MAX] for name, reason in islice(sorted(word.problems.items()), PROBLEMS_REPORTED)
    }
    document = {
        "daemon": word.daemon,
        "slots": f"{sum(1 << slot for slot in word.slots):x}",
        "problems": problems,
        "synced_ms_ago": word.synced_ms_ago,
    }
    return json.dumps(document, separators=(",", ":"))


def decode_report(text: str | None, *, synced_at_ms: int) -> SyncReport:
    """The word; mirrors of earlier releases say nothing but a time, and have all parts. ValueError
    when it is none.
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
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a mirror's report: {error!r}") from error


def newest_report_by_daemon(words: Iterable[ReceivedReport]) -> dict[str, ReceivedReport]:
    """Of what several brokers have heard, the last word of each daemon."""
    found: dict[str, ReceivedReport] = {}
    for word in words:
        if word.daemon not in found or word.received_ms_ago < found[word.daemon].received_ms_ago:
            found[word.daemon] = word
    return found


def counting(words: Collection[ReceivedReport]) -> list[ReceivedReport]:
    """Those that count, of one word a daemon: heard lately, or nobody has told of one of its parts
    since.
    """
    return [
        word for word in words if word.received_ms_ago <= REPORT_COUNTS_MS or word.slots - _reported_after(word, words)
    ]


def _reported_after(word: ReceivedReport, words: Iterable[ReceivedReport]) -> frozenset[int]:
    return frozenset().union(*(one.slots for one in words if one.received_ms_ago < word.received_ms_ago))


def link_sync_reports(ages_ms: Iterable[Sequence[int]], words: Iterable[ReceivedReport]) -> LinkSyncReports:
    """The link's account; `ages_ms` is how long ago each broker knows each part to have been
    carried whole, NEVER where it does not.
    """
    youngest = [
        min((age_ms for age_ms in ages if age_ms != NEVER), default=None) for ages in zip(*ages_ms, strict=True)
    ]
    known = [age_ms for age_ms in youngest if age_ms is not None]
    failing = [word for word in counting(list(newest_report_by_daemon(words).values())) if word.problems]
    is_known = bool(known) and len(known) == len(youngest)
    return LinkSyncReports(max(known) if is_known else None, tuple(sorted(failing, key=lambda word: word.daemon)))
