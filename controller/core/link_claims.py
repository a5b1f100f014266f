"""What a mirror may change at a site in the name of its link: only while the site is the link's
standby, and only at the link's epoch. A mirror learns a promotion later than the controller of the
promoted site; until then it would undo what operators change there. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import SiteRole, role_of


class LinkClaim(Struct, frozen=True, kw_only=True):
    """A mirror's claim to act for a link at an epoch; an empty name claims nothing."""

    link: str = ""
    epoch: int = 0


def claim_refusal(claim: LinkClaim, link: LinkRecord, *, site: str, what: str) -> str:
    """The reason why a mirror of this link may not change `what` at the site; empty if it may."""
    if link.epoch == claim.epoch and role_of(link, site) is SiteRole.PASSIVE:
        return ""
    return (
        f"link '{link.name}' is at epoch {link.epoch} with active site '{link.active_site}';"
        f" a mirror of epoch {claim.epoch} may not change {what}"
    )
