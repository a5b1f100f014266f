"""Decides whether the copies at a link's standby have the active site's history, for each
partition, also when the active site is lost.

If the source's log is known, the leader epochs of both logs decide
(`wire/batches/log_histories.py`). Otherwise, a copy has the source's history if one of these shows
it, and is unproven if none does:

| evidence | what it shows |
| --- | --- |
| the copy holds no record | nothing contradicts the source |
| a mirror has reported the source's end for the log since this site last took writes | the mirror compared both before it appended |
| its last record has a leader epoch of the source's, which begin at the floor of the source's promotion | the same |
| it ends at or below the end of the history that the source took over, by the account of its promotion | it is a prefix |

A copy that extends past that end with none of the source's records has records that the source
never had. Both sites store the accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dr.sites.core.evidence import Promotion
from dr.sites.core.log_columns import LogsInColumns
from dr.sites.core.positions import PartitionPosition
from wire.batches.log_histories import LogHistory, common_end
from wire.protocol.ids import UNKNOWN, TopicPartition

NAMED_MAX = 3


class Divergence(Struct, frozen=True, kw_only=True):
    """A copy with records that the source's log does not have: from `parts_at` on the two differ.

    `source_end` UNKNOWN: the source's log is unknown.
    """

    key: TopicPartition
    parts_at: int
    copy_end: int
    source_end: int = UNKNOWN

    @property
    def own_records(self) -> int:
        """Offsets that only the copy has."""
        return self.copy_end - self.parts_at

    def sentence(self, *, copy_site: str, source_site: str) -> str:
        """Describe the divergence for the operator."""
        own = f"{copy_site} has {_records(self.parts_at, self.copy_end)} of its own {_range(self.parts_at, self.copy_end)}"
        if self.source_end == UNKNOWN:
            other = f"what {source_site} wrote there is not known"
        elif self.source_end > self.parts_at:
            lacking = _records(self.parts_at, self.source_end)
            other = f"{source_site} has {lacking} that {copy_site} lacks {_range(self.parts_at, self.source_end)}"
        else:
            other = f"{source_site} ends there"
        return f"{self.key} differs from offset {self.parts_at} on: {own}, {other}"


class Differences(Struct, frozen=True, kw_only=True):
    """Copies that differ from the source's history, and copies with an unproven history, with their
    log ends.
    """

    diverged: Mapping[TopicPartition, Divergence]
    unproven: Mapping[TopicPartition, int]

    def __bool__(self) -> bool:
        return bool(self.diverged or self.unproven)

    def sentences(self, *, copy_site: str, source_site: str) -> list[str]:
        """Describe each diverged partition in one sentence, by name."""
        reported = {
            key: one.sentence(copy_site=copy_site, source_site=source_site) for key, one in self.diverged.items()
        }
        reported |= {
            key: f"nothing shows that {copy_site}'s copy of {key}, which ends at {end}, is the history of {source_site}"
            for key, end in self.unproven.items()
        }
        return [reported[key] for key in sorted(reported)]

    def summary(self, *, copy_site: str, source_site: str) -> str:
        """The sentences in one line, the first few of them."""
        sentences = self.sentences(copy_site=copy_site, source_site=source_site)
        more = f"; and {len(sentences) - NAMED_MAX} more partitions" if len(sentences) > NAMED_MAX else ""
        return "; ".join(sentences[:NAMED_MAX]) + more


def find_differences(
    copies: Mapping[TopicPartition, PartitionPosition],
    source: Mapping[TopicPartition, LogHistory],
    *,
    is_source_final: Mapping[TopicPartition, bool],
    promotion: Promotion | None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> Differences:
    """Compare each copy, up to its end or to that in `ends`, with the source's log or with the
    known facts about it.

    `is_source_final` is True for logs in `source` that include everything the copy could have: the
    source was asked after the target, or is fenced. `promotion` is that of the source, None if no
    account of it is known.
    """
    diverged: dict[TopicPartition, Divergence] = {}
    unproven: dict[TopicPartition, int] = {}
    for key, position in copies.items():
        known = source.get(key)
        # most copies: with the same epochs and no later end they are a prefix of the source
        if known is not None and position.epochs == known.epochs and position.log_end_offset <= known.end_offset:
            continue
        copy = position.history(None if ends is None else ends.get(key))
        parts_at = None if known is None else _parts_at(copy, known, is_final=is_source_final.get(key, False))
        if known is not None and parts_at is not None:
            diverged[key] = Divergence(
                key=key, parts_at=parts_at, copy_end=copy.end_offset, source_end=known.end_offset
            )
        elif known is None and not _is_proven(copy, position, promotion):
            kept = UNKNOWN if promotion is None else promotion.kept_below.get(key, UNKNOWN)
            if kept == UNKNOWN:
                unproven[key] = copy.end_offset
            elif kept < copy.end_offset:
                diverged[key] = Divergence(key=key, parts_at=kept, copy_end=copy.end_offset)
    return Differences(diverged=diverged, unproven=unproven)


def diverged_copies(
    copies: Mapping[TopicPartition, PartitionPosition], source: Mapping[TopicPartition, PartitionPosition]
) -> dict[TopicPartition, Divergence]:
    """Return the copies that differ from the logs of a source that was asked after the target."""
    keys: Iterable[TopicPartition] = copies
    if isinstance(copies, LogsInColumns) and isinstance(source, LogsInColumns) and copies.order is source.order:
        keys = copies.not_prefixes_of(source)
    compared = [key for key in keys if key in source]
    found = find_differences(
        {key: copies[key] for key in compared},
        {key: source[key].history() for key in compared},
        is_source_final=dict.fromkeys(compared, True),
        promotion=None,
    )
    return dict(found.diverged)


def promotion_of(site: str, promotions: Iterable[Promotion]) -> Promotion | None:
    """The last promotion of a site; None when no account of one is known."""
    return max((one for one in promotions if one.to_site == site), key=lambda one: one.epoch, default=None)


def _is_proven(copy: LogHistory, position: PartitionPosition, promotion: Promotion | None) -> bool:
    has_records_of_source = (
        promotion is not None and bool(copy.epochs) and 0 < promotion.leader_epoch_floor <= copy.epochs[-1].epoch
    )
    return copy.is_empty or position.source_high_watermark != UNKNOWN or has_records_of_source


def _parts_at(copy: LogHistory, source: LogHistory, *, is_final: bool) -> int | None:
    """Return the offset from which the copy differs from the source's history; None if it does not
    differ.
    """
    common = common_end(copy, source)
    if common >= copy.end_offset:
        return None
    has_only_gone_on = common == source.end_offset
    return None if has_only_gone_on and not is_final else common


def _records(start_offset: int, end_offset: int) -> str:
    return f"{end_offset - start_offset} records"


def _range(start_offset: int, end_offset: int) -> str:
    return f"(offsets {start_offset} to {end_offset - 1})"
