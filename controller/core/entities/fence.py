"""Refuses changes of ACLs, SCRAM users, client quotas, delegation tokens and group configs while
this site is fenced for a move, and changes by a mirror whose link is not followed here at its
epoch.

They belong to the whole site and follow its links. A change after the fence could miss the last
round of the mirror, and the promoted site would lack it. Writes of another tool to ZooKeeper itself
are not refused. Pure.
"""

from __future__ import annotations

from controller.core.link_claims import LinkClaim, claim_refusal
from controller.core.state.cluster import Cluster
from wire.rules.links import SiteRole, other_site, role_of


def change_refusal(cluster: Cluster, what: str, claim: LinkClaim) -> str:
    """The reason why `what` cannot be changed now; empty when it can."""
    site = cluster.rules.site
    fenced = sorted(name for name, link in cluster.links.items() if role_of(link, site) is SiteRole.FENCED)
    if fenced:
        link = cluster.links[fenced[0]]
        return (
            f"link '{link.name}' is fenced for a failover to site '{other_site(link, site)}'; {what} cannot be "
            f"changed now: change them at the active site when the failover is over"
        )
    if not claim.link:
        return ""
    if claim.link not in cluster.links:
        return f"the site has no link '{claim.link}'; its mirror may not change {what}"
    return claim_refusal(claim, cluster.links[claim.link], site=site, what=what)
