"""Marks of the access rules in a broker's images (ACLs, SCRAM users, client quotas and delegation
tokens), and the wait for other rules. A mark costs no look at the rules themselves: an image shares
what has not changed with the image before it.
"""

from __future__ import annotations

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from runtime.clock import Clock


class AccessMarks:
    """The marks of one broker process."""

    def __init__(self, cluster: Cluster, clock: Clock, node_id: int) -> None:
        self._cluster = cluster
        # another one after a restart, and at each broker
        self._process = f"{node_id}-{clock.now_ms():.0f}"
        self._rules = _rules_of(cluster.image)
        self._count = 0
        self._is_stopping = False

    @property
    def mark(self) -> str:
        """The mark of the newest image."""
        rules = _rules_of(self._cluster.image)
        if any(new is not old for new, old in zip(rules, self._rules, strict=True)):
            self._rules = rules
            self._count += 1
        return f"{self._process}-{self._count}"

    async def differ(self, mark: str, *, timeout_ms: float) -> None:
        """Wait until the rules are others than those of the mark."""
        await self._cluster.wait_for(lambda _: self._is_stopping or self.mark != mark, timeout_ms=timeout_ms)

    def stop(self) -> None:
        """The broker stops: end all waits."""
        self._is_stopping = True
        self._cluster.look_again()


def _rules_of(image: ClusterImage) -> tuple[object, ...]:
    return image.acls, image.scram_users, image.quotas, image.delegation_tokens
