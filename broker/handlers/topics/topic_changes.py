"""What all handlers that create, extend, configure or delete topics share: where this site refuses
the change, and how long their answers wait for the brokers to know it.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.cluster_image import ClusterImage
from wire.rules.links import is_stand_in

PROPAGATION_TIMEOUT_MS: Final = 2_000
"""The answer to a change waits at most this long for the brokers of this site and of its peers."""


def policy_refusal(image: ClusterImage, topic: str) -> str | None:
    """The reason why clients may not create or change the topic at this site; None if they may."""
    link = passive_link_for_new_topic(image, topic)
    if link is None:
        return None
    if is_stand_in(link):
        return f"link {link.name} may carry topic {topic}: repair the link's record in this site's ZooKeeper, it cannot be decoded"
    return (
        f"topic {topic} is carried by link {link.name}, whose active site is {link.active_site}; site {image.site} "
        f"{'could not reach it' if link.is_routed else 'does not forward requests: the link is not routed'}"
    )
