"""Decides which of several archivers may write to an archive. Pure.

An archiver writes a claim, then lists all claims. It may write if no other claim is live; otherwise
it withdraws its own. Two archivers that claim at the same time may both withdraw, but never both
write. An archiver lists the claims again before each manifest. This needs a file system that lists
a file as soon as it is written (local ones, HDFS, S3).

A live archiver renews its claim. A claim that does not change for the time of a lease is dead,
independently of the machines' clocks. The claim of an ended process on this machine is dead at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

LEASE_MS: Final = 60_000
"""The time without a renewal after which a claim is dead."""
RENEWAL_MS: Final = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One archiver's claim: its process by host, pid and start (clock ticks since the start of the
    machine), and the number of its renewals.
    """

    claim_id: str
    host: str
    pid: int
    process_started_ticks: int
    renewals: int = 0

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} at {self.host}"


def claim_of(document: Any) -> Claim:
    """The claim in a JSON document. ValueError when it is none."""
    try:
        return Claim(**document)
    except TypeError as error:
        raise ValueError(f"not a claim: {error}") from error


def ended_here(claim: Claim, *, own_host: str, is_running: Callable[[int, int], bool]) -> bool:
    """True if the claim is of a process of this machine that has ended. `is_running` takes a pid
    and a start (ticks).
    """
    return claim.host == own_host and not is_running(claim.pid, claim.process_started_ticks)


def others(claims: Sequence[Claim], own: Claim) -> list[Claim]:
    """The claims of other archivers."""
    return [claim for claim in claims if claim.claim_id != own.claim_id]


def unchanged(before: Sequence[Claim], now: Sequence[Claim]) -> list[Claim]:
    """The claims that were not renewed between two looks, one lease apart."""
    earlier: Mapping[str, Claim] = {claim.claim_id: claim for claim in before}
    return [claim for claim in now if earlier.get(claim.claim_id) == claim]
