"""Claims, stored in the link's topic: which mirror writes which slots of a link in transactions.

A mirror with a new epoch of its transactional id claims the slots that it is to write under that
epoch, and only then reads the claims of others. So of two mirrors that write the same slot the
later one in the topic has seen the earlier one:

  a. A claim fences all earlier claims that have a slot in common with it, before its mirror reads
     the positions of those slots.
  b. A mirror writes only slots that it has claimed, under the very epoch of the claim.
  c. A claim is removed only when its epoch is known to be fenced.

Daemons that share a link have separate transactional ids, and continue with their remaining slots
after they were fenced. A link that is not shared has one id, and a replaced mirror of it does not
resume. Called by `mirror/translate/transactions.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec import Struct


class ClaimName(NamedTuple):
    """The key of a claim: it ends with the epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Claim(Struct, frozen=True, kw_only=True):
    """The claim of one mirror; `slots` is None for all slots, of a link that is not shared. A claim
    without a transactional id belongs to a mirror that writes without transactions.
    """

    name: ClaimName
    # A token of the mirror's process.
    mirror: str
    slots: frozenset[int] | None

    @property
    def is_shared(self) -> bool:
        """True if other mirrors of the link may have other slots."""
        return self.slots is not None

    def overlaps(self, other: Claim) -> bool:
        """True if both mirrors would write a common slot."""
        if self.slots is None or other.slots is None:
            return True
        return not self.slots.isdisjoint(other.slots)


def rivals_of(own: Claim, claims: Iterable[Claim]) -> list[Claim]:
    """The claims that must be fenced before anything of `own` is read, from all claims in the order
    of the topic.
    """
    # Only the last claim under each id: its epoch is higher and has fenced the earlier ones.
    last = {claim.name.transactional_id: claim for claim in claims if _is_anothers(claim, own)}
    return [claim for claim in last.values() if own.overlaps(claim)]


def outlived(own: Claim, claims: Collection[Claim]) -> list[Claim]:
    """The claims of epochs that a later claim under the same id has fenced, from all claims in the
    order of the topic.
    """
    last = {claim.name.transactional_id: claim for claim in claims if _is_anothers(claim, own)}
    living = {own.name, *(claim.name for claim in last.values())}
    return [claim for claim in claims if claim.name not in living]


def _is_anothers(claim: Claim, own: Claim) -> bool:
    return claim.name.transactional_id != own.name.transactional_id


def successor_of(own: Claim, later: Iterable[Claim]) -> Claim | None:
    """A claim after `own` whose mirror replaces this one; mirrors that share a link are replaced
    slot by slot.
    """
    for claim in later:
        # A mirror whose share changes claims again; that is no successor.
        if claim.mirror != own.mirror and not (claim.is_shared and own.is_shared):
            return claim
    return None
