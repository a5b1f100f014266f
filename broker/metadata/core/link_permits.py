"""The time until which this broker may acknowledge writes under links with a lease, on its own
monotonic clock.

A role decides what the broker may begin; a permit is checked again right before an acknowledgement
is sent. So a process that is stopped between its append and its answer, and resumes after another
site was promoted, sends no acknowledgement. Pure: the caller provides the time.
"""

from __future__ import annotations

import math
from typing import Final

from broker.metadata.core.cluster_image import ClusterImage, LinkRole
from wire.control.cluster_pb2 import LinkRecord

NO_PERMIT: Final = -math.inf


class LinkPermits:
    """The permits by link name; a link without an entry never had a permit here."""

    def __init__(self) -> None:
        self._until_ms: dict[str, float] = {}
        self.is_in_use = False
        """True if any link ever had a permit here; otherwise permits need no check."""

    def extend(self, link: str, until_ms: float) -> None:
        """Extend the permit to this time; an earlier end than the known one has no effect."""
        self._until_ms[link] = max(until_ms, self._until_ms.get(link, NO_PERMIT))
        self.is_in_use = True

    def withdraw(self, link: str) -> None:
        """The link's permit ends now."""
        self._until_ms[link] = NO_PERMIT
        self.is_in_use = True

    def lapsed(self, now_ms: float) -> list[str]:
        """Links whose permit has ended."""
        return [link for link, until_ms in self._until_ms.items() if until_ms <= now_ms]

    def next_end_ms(self) -> float:
        """The end of the next permit to end (monotonic ms); infinite if there is none."""
        return min((until_ms for until_ms in self._until_ms.values() if until_ms > NO_PERMIT), default=math.inf)

    def is_lapsed(self, image: ClusterImage, link: LinkRecord, *, now_ms: float) -> bool:
        """True if this site is active under the link while this broker has no valid permit."""
        if not link.lease_ms:
            return False
        role = image.role_in(link)
        if role is LinkRole.ACTIVE:
            return now_ms >= self._until_ms.get(link.name, NO_PERMIT)
        return role is LinkRole.UNCONFIRMED

    def may_acknowledge(self, image: ClusterImage, topic: str, *, now_ms: float) -> bool:
        """True if records of the topic that were appended before may be acknowledged now. Under a
        fence they may, because the other site is promoted only with all records that were appended
        before it.
        """
        for name in image.links_of(topic):
            link = image.links[name]
            if self.is_lapsed(image, link, now_ms=now_ms):
                return False
            if link.lease_ms and image.role_in(link) is LinkRole.PASSIVE:
                return False
        return True

    def may_coordinate(self, image: ClusterImage, link: LinkRecord | None, *, now_ms: float) -> bool:
        """True if decisions of a coordinator for groups of the link may be acknowledged now: not
        without a permit, and not after another site has become active.
        """
        if link is None:
            return True
        is_elsewhere = link.is_routed and image.role_in(link) is LinkRole.PASSIVE
        return not (link.lease_ms and is_elsewhere) and not self.is_lapsed(image, link, now_ms=now_ms)

    def may_end_transactions(self, image: ClusterImage, *, now_ms: float) -> bool:
        """True if the end of a transaction may be acknowledged now: every routed link has its
        permit, and this site has not become passive in all of them.
        """
        routed = [link for link in image.links.values() if link.is_routed]
        if any(self.is_lapsed(image, link, now_ms=now_ms) for link in routed):
            return False
        is_elsewhere = all(image.role_in(link) is LinkRole.PASSIVE for link in routed)
        return not (is_elsewhere and any(link.lease_ms for link in routed))
