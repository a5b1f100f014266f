"""Combines the reports of the link's mirror at a site's brokers, and describes them in sentences.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from wire.control.broker_pb2 import AccessDigests, DescribeGroupOffsetsReply, SyncReport
from wire.rules.sync_reports import MIRROR_SLOTS, NEVER, ReceivedReport, link_sync_reports

MIRROR_SILENT_MS = 10_000
"""A mirror reports to the passive site each second that everything is carried; without a report for
this time it does not run, or has a problem.
"""
SILENT_ROUNDS = 4
MIRROR_SILENT_MS_MAX = 60_000
"""A mirror of very many partitions, or on a busy machine, may need long rounds: then a multiple of
its round time applies instead, up to this maximum.
"""
MIRROR_NEVER_SEEN = -1
"""The age of a report that never came."""
GROUPS_NAMED = 3
"""Groups that the sentence on one daemon names; the others are counted."""


def sync_reports_of_mirror(
    replies: Iterable[DescribeGroupOffsetsReply], *, now_ms: int
) -> tuple[int, list[SyncReport]]:
    """Return the time (Unix ms) until which every part of the link is carried, 0 if that is unknown
    for a part; and the reports of failing daemons.
    """
    reported = list(replies)
    ages_ms = [reply.synced_ms_ago or _one_age_ms(reply, now_ms) for reply in reported]
    words = [
        ReceivedReport(word.daemon, frozenset(word.slots), dict(word.problems), word.received_ms_ago)
        for reply in reported
        for word in reply.words
    ]
    found = link_sync_reports(ages_ms, words)
    failing = [
        SyncReport(
            daemon=word.daemon,
            slots=sorted(word.slots),
            problems=word.problems,
            received_ms_ago=round(word.received_ms_ago),
        )
        for word in found.failing
    ]
    return (0 if found.synced_ms_ago is None else now_ms - found.synced_ms_ago), failing


def carried_access(replies: Iterable[DescribeGroupOffsetsReply]) -> AccessDigests | None:
    """The digests of the other site's access rules as the mirror last carried them, from the newest
    report that has them; None without one.
    """
    words = [word for reply in replies for word in reply.words if word.HasField("carried_access")]
    newest = min(words, key=lambda word: word.received_ms_ago, default=None)
    return None if newest is None else newest.carried_access


def fenced_access(replies: Iterable[DescribeGroupOffsetsReply]) -> AccessDigests | None:
    """The digests of a fenced site's own access rules; None where no broker has the fence in force.
    Brokers that disagree have not received all of the controller's changes: the part has no digest
    then, which equals no other.
    """
    found = [reply.fenced_access for reply in replies if reply.HasField("fenced_access")]
    if not found:
        return None
    merged = dict(found[0].by_part)
    for digests in found[1:]:
        for part in {*merged, *digests.by_part}:
            if merged.get(part) != digests.by_part.get(part):
                merged[part] = ""
    return AccessDigests(by_part=merged)


def access_synced_ms_ago(replies: Iterable[DescribeGroupOffsetsReply]) -> int | None:
    """How long ago (ms) the last round over access rules began that carried all of them; None if no
    broker has a report of one.
    """
    return min(
        (reply.access_synced_ms_ago for reply in replies if reply.HasField("access_synced_ms_ago")), default=None
    )


def mirror_silent_ms(round_ms: int) -> int:
    """The report age from which on the mirror counts as not reporting; `round_ms` is the measured
    time between its reports, 0 if unknown.
    """
    return max(MIRROR_SILENT_MS, min(SILENT_ROUNDS * round_ms, MIRROR_SILENT_MS_MAX))


def report_round_ms(replies: Iterable[DescribeGroupOffsetsReply]) -> int:
    """The time between the reports of the mirror's slowest daemon, in ms; 0 when no broker knows
    it.
    """
    return max((reply.report_round_ms for reply in replies), default=0)


def _one_age_ms(reply: DescribeGroupOffsetsReply, now_ms: int) -> list[int]:
    """A broker of an earlier release knows no parts, only the time of the whole mirror."""
    return [max(0, now_ms - reply.synced_at_ms) if reply.synced_at_ms else NEVER] * MIRROR_SLOTS


def mirror_sentence(age_ms: int | None) -> str:
    """The age of the mirror's last report that everything is carried, as a sentence; "" for
    None.
    """
    if age_ms is None:
        return ""
    if age_ms == MIRROR_NEVER_SEEN:
        return "no report yet"
    return f"reported {age_ms / 1000:.1f} s ago" if age_ms <= MIRROR_SILENT_MS else f"no report for {age_ms // 1000} s"


def resting_ms_ago(replies: Iterable[DescribeGroupOffsetsReply]) -> int:
    """Return the time (ms) since an idle mirror reported to one of the site's brokers;
    MIRROR_NEVER_SEEN if none did.
    """
    ages_ms = [reply.resting_ms_ago for reply in replies if reply.resting_ms_ago != MIRROR_NEVER_SEEN]
    return min(ages_ms, default=MIRROR_NEVER_SEEN)


def failing_sentences(failing: Iterable[SyncReport]) -> tuple[str, ...]:
    """Describe each daemon that cannot carry groups' offsets: its name, the groups and the
    reason.
    """
    return tuple(
        f"mirror daemon {word.daemon or 'without a name'} does not carry offsets: {_named(dict(word.problems))} "
        f"(said {word.received_ms_ago / 1000:.1f} s ago)"
        for word in failing
    )


def _named(problems: dict[str, str]) -> str:
    reported = [f"{name}: {reason}" for name, reason in sorted(problems.items())]
    more = len(reported) - GROUPS_NAMED
    return "; ".join(reported if more <= 0 else [*reported[:GROUPS_NAMED], f"and {more} more"])
