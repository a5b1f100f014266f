"""Requests about ACLs, quotas, SCRAM users and delegation tokens that reach a standby from software
other than Antipode's: the active site answers them.

Clients see the brokers of both sites as one cluster, and Kafka's tools send these requests to any
of them. A mirror carries the active site's rules to the standby, never the other way: a change that
one of these tools made at the standby would be acknowledged, would hold at the standby alone, and
the mirror might undo it. Antipode's own tools and mirrors name the site, so they change the site
that they ask.

Callers: the handlers of requests that create, alter, delete and describe these rules; those about
tokens by `broker/handlers/tokens/token_requests.py`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.site.active_site import ActiveSite
from wire.rules.links import is_stand_in


class Rules(Enum):
    """What a mirror carries to the standby: in an error's text, and the command that changes it at
    one site.
    """

    ACLS = ("ACLs", "antipode acls")
    QUOTAS = ("client quotas", "antipode quotas")
    USERS = ("SCRAM users", "antipode users")


class Followed(NamedTuple):
    """The answer of the active site; `refusal` says why a change must be refused without one. None
    and an empty text: this site answers.
    """

    answer: Any | None = None
    refusal: str = ""


def followed_site(image: ClusterImage) -> str | None:
    """The other site that is active for every routed link of this one; None without such a site."""
    links = [link for link in image.links.values() if link.is_routed]
    if any(is_stand_in(link) for link in links):
        return None
    sites = {link.active_site for link in links}
    return next(iter(sites)) if len(sites) == 1 and image.site not in sites else None


def followed_by(image: ClusterImage, context: RequestContext) -> str | None:
    """The site that must answer this request instead of this one; None without such a site."""
    return None if context.is_own_tool or context.is_forwarded else followed_site(image)


async def ask_followed_site(
    active_site: ActiveSite, image: ClusterImage, context: RequestContext, request: Any, rules: Rules
) -> Followed:
    """Hand the request about these rules on if another site must answer it."""
    site = followed_by(image, context)
    if site is None:
        return Followed()
    answer = await active_site.ask_site(image, site, context, request)
    if answer is not None:
        return Followed(answer)
    name, command = rules.value
    refusal = (
        f"the {name} of site {image.site} follow those of site {site}, which has not answered in time and may "
        f"have made the change: repeat it; `{command}` changes the {name} of site {image.site} alone"
    )
    return Followed(refusal=refusal)
