"""The offsets that a repair examines: the findings of a comparison, by partition. Pure.

The findings come from the `report.json` of `antipode reconcile`, with or without `--quick`, or from
a comparison by the repair itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from dr.proof.core.equality import EqualityReport
from wire.protocol.ids import PartitionKey


class Suspect(NamedTuple):
    """Offsets of one partition that differ, both included."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


def of_equality(report: EqualityReport) -> list[Suspect]:
    """Return the offsets that a comparison by digests has found."""
    return [
        Suspect(one.topic, one.partition, difference.first_offset, difference.last_offset)
        for one in report.partitions
        for difference in one.differences
    ]


def of_document(text: str) -> list[Suspect]:
    """Return the offsets that a `report.json` names. Raises ValueError if the text is no such
    report.
    """
    try:
        findings = json.loads(text)["findings"]
        return [
            Suspect(str(one["topic"]), int(one["partition"]), int(one["first_offset"]), int(one["last_offset"]))
            for one in findings
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"is not a report of antipode reconcile ({error!r}); accepted: the report.json of its --out directory"
        ) from error


def by_partition(suspects: Iterable[Suspect]) -> dict[PartitionKey, tuple[int, int]]:
    """Return the first and the last suspected offset of each partition, both included."""
    found: dict[PartitionKey, tuple[int, int]] = {}
    for one in sorted(suspects):
        key = (one.topic, one.partition)
        first, last = found.get(key, (one.first_offset, one.last_offset))
        found[key] = (min(first, one.first_offset), max(last, one.last_offset))
    return found
