"""Decides which quarantine entries expire, and of which the broker warns before that. Pure; caller:
`broker/replication/quarantine_upkeep.py`.

Without a retention no entry expires. With one, an entry is deleted only after a warning by this
process that is at least a tenth of the retention old, a day at most: so an alarm comes before
anything expires, also where the broker was down for the whole retention, or the retention was made
shorter. The warning is repeated after each start. Bytes delete nothing: a partition whose
quarantine is full refuses further removals of records, and the broker warns before that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

KEPT_FOREVER: Final = -1
"""The retention under which nothing expires, and the expiry of what never does."""
WARNED_SHARE: Final = 0.1
"""The warning comes when this share of the retention is left."""
WARNED_MS_MAX: Final = 86_400_000
FILLING_PERCENT: Final = 80.0
"""The use of a partition's bound from which on the broker warns."""


class KeptEntry(NamedTuple):
    """The facts that decide about one entry; `place` is the partition whose bound it counts for."""

    name: str
    place: str
    size_bytes: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineUse:
    """How full a broker's quarantine is, and when its first entry expires (Unix ms)."""

    entries: int = 0
    size_bytes: int = 0
    fullest_percent: float = 0.0
    fullest_place: str = ""
    first_expiry_at_ms: int = KEPT_FOREVER
    first_expiring: str = ""
    is_expiring: bool = False
    """True if the broker has warned of that expiry."""

    def expires_in_ms(self, now_ms: int) -> int | None:
        """The time until the first entry expires; None if none does."""
        return max(0, self.first_expiry_at_ms - now_ms) if self.first_expiring else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The result of one look. `expiring`: entries of which the broker has to warn now, with their
    expiry (Unix ms); `filling`: partitions likewise, with their percentage; `expired`: entries to
    delete.
    """

    use: QuarantineUse
    expiring: tuple[tuple[KeptEntry, int], ...] = ()
    filling: tuple[tuple[str, float], ...] = ()
    expired: tuple[KeptEntry, ...] = ()


class QuarantineRetention:
    """Remembers the warnings of one broker process."""

    def __init__(self) -> None:
        # The monotonic time of the warning about each entry.
        self._warned_ms: dict[KeptEntry, float] = {}
        self._filling: frozenset[str] = frozenset()

    def look(
        self, entries: Iterable[KeptEntry], *, retention_ms: int, bytes_max: int, now_ms: int, monotonic_ms: float
    ) -> Upkeep:
        """Decide about all entries. `now_ms` is Unix time; `monotonic_ms` measures the time since
        the warnings.
        """
        found = sorted(entries, key=lambda entry: (entry.at_ms, entry.name))
        warned_for_ms = min(retention_ms * WARNED_SHARE, WARNED_MS_MAX)
        expiring: list[tuple[KeptEntry, int]] = []
        expired: list[KeptEntry] = []
        first: tuple[int, str] = (KEPT_FOREVER, "")
        warned_ms: dict[KeptEntry, float] = {}
        for entry in found if retention_ms != KEPT_FOREVER else ():
            known_ms = self._warned_ms.get(entry)
            since_ms = 0.0 if known_ms is None else monotonic_ms - known_ms
            left_ms = max(entry.at_ms + retention_ms - now_ms, warned_for_ms - since_ms)
            if known_ms is not None and left_ms <= 0:
                expired.append(entry)
                continue
            expires_at_ms = now_ms + round(left_ms)
            if known_ms is None and left_ms <= warned_for_ms:
                known_ms = monotonic_ms
                expiring.append((entry, expires_at_ms))
            if known_ms is not None:
                warned_ms[entry] = known_ms
            if not first[1] or expires_at_ms < first[0]:
                first = expires_at_ms, entry.name
        self._warned_ms = warned_ms
        kept = [entry for entry in found if entry not in expired]
        used = _used_percent(kept, bytes_max)
        full = {place: percent for place, percent in used.items() if percent >= FILLING_PERCENT}
        filling = tuple((place, full[place]) for place in sorted(full.keys() - self._filling))
        self._filling = frozenset(full)
        fullest = max(used, key=lambda place: used[place], default="")
        use = QuarantineUse(
            entries=len(kept),
            size_bytes=sum(entry.size_bytes for entry in kept),
            fullest_percent=used.get(fullest, 0.0),
            fullest_place=fullest,
            first_expiry_at_ms=first[0],
            first_expiring=first[1],
            is_expiring=any(entry.name == first[1] for entry in warned_ms),
        )
        return Upkeep(use=use, expiring=tuple(expiring), filling=filling, expired=tuple(expired))


def _used_percent(entries: Iterable[KeptEntry], bytes_max: int) -> dict[str, float]:
    used: dict[str, int] = defaultdict(int)
    for entry in entries:
        used[entry.place] += entry.size_bytes
    return {place: 100 * size / max(bytes_max, 1) for place, size in used.items()}
