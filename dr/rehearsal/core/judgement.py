"""Judges a rehearsal: compares the findings with the guarantees of a failover. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from dr.drill.core.expectations import Verdict
from dr.sites.core.evidence import GroupPartition
from wire.protocol.ids import TopicPartition

NAMED_MAX = 3


class RehearsalFacts(Struct, kw_only=True):
    """The findings of a rehearsal; problems are sentences. `kept_below` comes from the account of
    the sandbox's failover. `groups_before` has the standby's offsets before its logs were cloned.
    `digests_differ` names the partitions in which the clone or the standby differs.
    """

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    absent: tuple[TopicPartition, ...] = ()
    promotion_problem: str = ""
    promotion_ms: int = 0
    kept_below: Mapping[TopicPartition, int] = field(default_factory=dict)
    unwritable: tuple[str, ...] = ()
    groups_before: Mapping[GroupPartition, int] = field(default_factory=dict)
    groups_after: Mapping[GroupPartition, int] = field(default_factory=dict)
    load_sent: int = 0
    load_problems: tuple[str, ...] = ()
    digests_compared: int = 0
    digests_differ: tuple[str, ...] = ()
    digests_unknown: tuple[str, ...] = ()
    shared_file_changes: tuple[str, ...] = ()
    mirror_before: str = ""
    mirror_after: str = ""


def judge_rehearsal(facts: RehearsalFacts) -> list[Verdict]:
    """A verdict for each guarantee."""
    short = [
        f"{key} ends at {facts.kept_below.get(key, -1)}, the standby had {end}"
        for key, end in sorted(facts.ends.items())
        if facts.kept_below.get(key, -1) != end
    ]
    return [
        _verdict(
            "coverage", "a log of every carried partition on this machine", [f"no log of {key}" for key in facts.absent]
        ),
        _verdict(
            "promotion",
            "every clone takes writes in a new epoch",
            [*filter(None, [facts.promotion_problem]), *facts.unwritable],
            found=f"{len(facts.ends)} partitions in {facts.promotion_ms} ms",
        ),
        _verdict("records", "every clone has all records of the standby", short),
        _verdict("groups", "every committed offset is kept, and none is above the log end", _groups(facts)),
        _verdict(
            "clients",
            "every acknowledged record is read back exactly once, and a transaction commits",
            list(facts.load_problems),
            found=f"{facts.load_sent} records",
        ),
        _verdict(
            "digests",
            "the standby's logs before and after, and the clones, are equal",
            [*facts.digests_differ, *facts.digests_unknown],
            found=f"equal in {facts.digests_compared} partitions",
        ),
        _verdict("shared files", "not written to", list(facts.shared_file_changes)),
        _verdict(
            "mirror",
            "mirroring continues",
            [facts.mirror_after] if facts.mirror_after and not facts.mirror_before else [],
        ),
    ]


def _groups(facts: RehearsalFacts) -> list[str]:
    problems = []
    for place, offset in sorted(facts.groups_before.items()):
        found = facts.groups_after.get(place)
        end = facts.ends.get(TopicPartition(place.topic, place.partition))
        if end is None:
            continue  # Its partition was not cloned, which is judged separately.
        if found is None or found < offset:
            problems.append(f"{place.group} had {offset} in {place.topic}-{place.partition} and has {found}")
        elif found > max(end, offset):
            problems.append(f"{place.group} is at {found} in {place.topic}-{place.partition}, which ends at {end}")
    return problems


def _verdict(name: str, wanted: str, problems: list[str], *, found: str = "so it is") -> Verdict:
    if problems:
        more = f" (and {len(problems) - NAMED_MAX} more)" if len(problems) > NAMED_MAX else ""
        found = "; ".join(problems[:NAMED_MAX]) + more
    return Verdict(name=name, wanted=wanted, found=found, is_met=not problems)
