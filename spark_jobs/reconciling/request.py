"""A request to compare two sites, and the survey that finds what there is to compare."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from runtime.process import OperationalFailure
from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.logs.survey import TopicFilter, first_since, log_ends, settled_ends, topic_filter, topic_names
from spark_jobs.reconciling.core.extents import Extent, bounded, extents
from spark_jobs.reconciling.core.waves import WAVE_OFFSETS, FindingLimits, Load, PauseBounds
from spark_jobs.session import Progress
from wire.protocol.ids import PartitionKey

NAMED_MAX: Final = 20
"""Topics that a message lists."""
SETTLE_TIMEOUT_MS: Final = 10_000
FOLLOWS_WITHIN_MS: Final = 2_000
"""Time for a source that follows the target to get what the target has. Records that clients wrote
at the target alone cost this time.
"""
NO_BOUND: Final = -1
PROCESS_OFFSETS_MAX: Final = 500_000
"""So many offsets are compared in less time than Spark takes to start, or little more where each
batch has one record.
"""
DECIDING: Final = (
    *("source_bootstrap", "target_bootstrap", "topic_whitelist", "topic_blacklist"),
    *("is_deep", "until_ms"),
)
"""The fields that determine the comparison; an interrupted run must be resumed with the same
values.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to compare two sites. `range_offsets` 0 chooses the size of ranges; bootstrap
    addresses are host:port lists.
    """

    source_site: str
    target_site: str
    source_bootstrap: str
    target_bootstrap: str
    topic_whitelist: Sequence[str] = (".*",)
    topic_blacklist: Sequence[str] = ()
    range_offsets: int = 0
    is_deep: bool = False
    settle_timeout_ms: int = SETTLE_TIMEOUT_MS
    until_ms: int = NO_BOUND
    """Compare only the offsets before the first record with this timestamp (Unix ms) or a later
    one; -1 compares everything.
    """
    limits: FindingLimits = field(default_factory=FindingLimits)
    pause: PauseBounds = field(default_factory=PauseBounds)
    wave_offsets: int = WAVE_OFFSETS
    process_offsets_max: int = PROCESS_OFFSETS_MAX
    """A run of up to this many offsets is compared in its own process; 0: always in Spark."""

    @property
    def bootstraps(self) -> dict[str, str]:
        """Addresses by site."""
        return {self.source_site: self.source_bootstrap, self.target_site: self.target_bootstrap}

    @property
    def is_wanted(self) -> TopicFilter:
        """The filter of its topics."""
        return topic_filter(self.topic_whitelist, self.topic_blacklist)

    def deciding(self) -> Mapping[str, Any]:
        """The fields that decide what is compared, as JSON values."""
        plain = {name: value for name, value in asdict(self).items() if name in DECIDING}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def surveyed(request: Request, progress: Progress) -> list[Extent]:
    """The logs to compare: those of both sites, after each has had time to reach the other one's
    ends. Raises OperationalFailure when a site does not answer, or no topic matches.
    """
    is_wanted = request.is_wanted
    progress(f"asking {request.source_site} and {request.target_site} for their logs")
    snapshot = log_ends(request.source_bootstrap, is_wanted)
    bounds: dict[PartitionKey, int] = {}
    if request.until_ms != NO_BOUND:
        at_target = first_since(request.target_bootstrap, is_wanted, request.until_ms)
        bounds = {key: offset for key, offset in at_target.items() if key not in snapshot}
        bounds |= first_since(request.source_bootstrap, is_wanted, request.until_ms)
    snapshot = bounded(snapshot, bounds)
    target = settled_ends(request.target_bootstrap, is_wanted, snapshot, timeout_ms=request.settle_timeout_ms)
    target = bounded(target, bounds)
    # After a failover of the link the source follows the target, whose writers may be ahead of it.
    newest = settled_ends(
        request.source_bootstrap,
        is_wanted,
        {key: ends for key, ends in target.items() if key in snapshot},
        timeout_ms=min(request.settle_timeout_ms, FOLLOWS_WITHIN_MS),
    )
    found = extents(snapshot, target, bounded(newest, bounds))
    if not found:
        raise OperationalFailure(_nothing_matches(request))
    return found


def load_of(request: Request) -> Load:
    """The lag of the target and the time that the slower site takes to answer. OperationalFailure
    when one does not.
    """
    found: list[dict[PartitionKey, LogEnds]] = []
    latencies_ms = []
    for bootstrap in (request.source_bootstrap, request.target_bootstrap):
        began = time.monotonic()
        found.append(log_ends(bootstrap, request.is_wanted))
        latencies_ms.append((time.monotonic() - began) * 1000)
    source, target = found
    lag = sum(max(ends.end_offset - target.get(key, LogEnds()).end_offset, 0) for key, ends in source.items())
    return Load(lag_records=lag, latency_ms=max(latencies_ms))


def _nothing_matches(request: Request) -> str:
    """The message that names the filter and the topics that exist."""
    given = f"whitelist {','.join(request.topic_whitelist)!r}, blacklist {','.join(request.topic_blacklist)!r}"
    there = [f"{site} has {_listed(topic_names(bootstrap))}" for site, bootstrap in sorted(request.bootstraps.items())]
    return f"no topic matches ({given}), so that nothing was compared: {'; '.join(there)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more if names else "no topic"
