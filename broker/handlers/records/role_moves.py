"""Writes that wait while the active role of their link moves to the other site, or awaits its
confirmation.

The wait usually takes less time than a client waits before it tries again, and afterwards a refusal
can name the new leader.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.cluster import Cluster
from broker.network.entities import topic_id_bytes
from wire.protocol.messages.produce_codec import ProduceRequest

SUSPENDED_MS_MAX: Final = 2_000
"""How long (ms) a request waits while the active role of its link moves."""


def awaits_role(cluster: Cluster, request: ProduceRequest) -> bool:
    """True while the link of one of the topics does not show whether this site accepts writes."""
    # Checked first, because a role moves rarely: the topics of most requests are not looked up.
    return cluster.has_suspended_link and _has_suspended_topic(cluster, request)


async def until_role_is_known(cluster: Cluster, request: ProduceRequest) -> None:
    """Wait until the links of all topics show it, no longer than the client waits."""
    timeout_ms = min(request.timeout_ms, SUSPENDED_MS_MAX)
    await cluster.wait_for(lambda _: not _has_suspended_topic(cluster, request), timeout_ms=timeout_ms)


def _has_suspended_topic(cluster: Cluster, request: ProduceRequest) -> bool:
    names = (
        topic.name or cluster.image.topic_names.get(topic_id_bytes(topic.topic_id), "") for topic in request.topics
    )
    return any(map(cluster.is_suspended, names))
