"""The result of one wave of a reconciliation as a JSON document and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from spark_jobs.reconciling.core.findings import Explanation, ExplanationKind, Finding, FindingKind
from spark_jobs.reconciling.core.verdict import PartitionReport, RangeReport, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWave:
    """The partitions of one wave and their findings."""

    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]
    explanations: tuple[Explanation, ...]
    problems: tuple[str, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def wave_of(document: Mapping[str, Any]) -> JudgedWave:
    """The wave in a JSON document. ValueError when it is none."""
    try:
        return JudgedWave(
            partitions=tuple(map(_partition_of, document["partitions"])),
            findings=tuple(Finding(**{**one, "kind": FindingKind(one["kind"])}) for one in document["findings"]),
            explanations=tuple(
                Explanation(**{**one, "kind": ExplanationKind(one["kind"])}) for one in document["explanations"]
            ),
            problems=tuple(document["problems"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a judged wave: {error!r}") from error


def _partition_of(fields: Mapping[str, Any]) -> PartitionReport:
    ranges: Iterable[Mapping[str, Any]] = fields["ranges"]
    return PartitionReport(
        **{
            **fields,
            "source": Side(**fields["source"]),
            "target": Side(**fields["target"]),
            "ranges": tuple(RangeReport(**one) for one in ranges),
        }
    )
