"""Writes that wait while the active role of their link moves to the other site, or awaits its
confirmation, and that are forwarded to the other site when it has become active.

A client that is refused pauses before it tries again, librdkafka and Java for 100 ms and more, even
if the refusal names the new leader. So a request that waited is forwarded, and so are those that
follow it for a while, without a wait for each other. The broker then refuses requests again, and
the refusal names the new leader. Writes are forwarded as soon as an image that names the other site
begins to apply: with thousands of partitions it takes a moment until all have their new roles.

The other site decides about a forwarded request as about any other, so its records are acknowledged
only under its own confirmed role. Not forwarded are requests with acks=0, requests of transactions
and requests that were forwarded once. They are refused after the wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker.handlers.records.leader_hints import HINTED_ERRORS, leader_hint
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import FORWARDED_CLIENT_ID
from broker.site.active_site import leading_site
from broker.site.forwarded_writes import ForwardedWrites, topic_name
from runtime.clock import Clock
from wire.protocol.messages.produce_codec import PartitionProduced, ProduceRequest, TopicProduced

SUSPENDED_MS_MAX: Final = 2_000
"""How long (ms) a request waits while the active role of its link moves."""
FORWARDED_MS: Final = 1_000
"""How long (ms) requests are forwarded after the last one that waited: longer than a client needs
to send what it collects while one request waits.
"""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Records of all requests that wait or are forwarded at one time; requests above it are refused."""
WAITING_COUNT_MAX: Final = 10_000


class RoleMoves:
    """The requests of one broker that wait or are forwarded."""

    def __init__(self, cluster: Cluster, writes: ForwardedWrites, clock: Clock) -> None:
        self._cluster = cluster
        self._writes = writes
        self._clock = clock
        self._forwards_until_ms = 0.0
        self._is_forwarding = False
        self._waiting_count = 0
        self._waiting_bytes = 0

    def concern(self, request: ProduceRequest) -> bool:
        """True if the request must wait or may be forwarded: its handler awaits `results` first."""
        # Checked first, because a role moves rarely: the topics of most requests are not looked up.
        if not self._cluster.has_suspended_link and not self._is_forwarding:
            return False
        if self._waiting_count >= WAITING_COUNT_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            return False
        return self._is_suspended(request) or self.route(request, None) is not None

    async def results(self, request: ProduceRequest, client_id: str | None) -> list[TopicProduced] | None:
        """Wait until the links of all topics show which site accepts writes, no longer than the
        client waits. Return the other site's results if it accepts them; None if this broker must
        handle the request.
        """
        with self._counted(request):
            if self._is_suspended(request) and self.route(request, client_id) is None:
                timeout_ms = min(request.timeout_ms, SUSPENDED_MS_MAX)
                await self._cluster.wait_for(
                    lambda _: not self._is_suspended(request) or self.route(request, client_id) is not None,
                    timeout_ms=timeout_ms,
                )
                if _is_led_elsewhere(request, self._cluster.coming or self._cluster.image):
                    self._forward_for_a_while()
            image = self.route(request, client_id)
        return None if image is None else await self.forwarded(request, image)

    def route(self, request: ProduceRequest, client_id: str | None) -> ClusterImage | None:
        """The image by which the request is forwarded without a wait; None if it waits, or if this
        broker handles it.
        """
        # a request that was forwarded once is not forwarded again: two sites may take each other
        # for the active one
        if request.acks == 0 or request.transactional_id is not None or client_id == FORWARDED_CLIENT_ID:
            return None
        if self._is_suspended(request):
            coming = self._cluster.coming
            if coming is None or not _is_led_elsewhere(request, coming):
                return None
            self._forward_for_a_while()
            return coming
        if self._clock.monotonic_ms() >= self._forwards_until_ms:
            self._is_forwarding = False
            return None
        image = self._cluster.image
        return image if _is_led_elsewhere(request, image) else None

    async def forwarded(self, request: ProduceRequest, image: ClusterImage) -> list[TopicProduced]:
        """The results of the other site, which leads all topics in the image. Requests of one
        connection are sent in the order of the calls.
        """
        with self._counted(request):
            found = await self._writes.results(image, request)
        return [_with_hints(image, topic) for topic in found]

    @contextmanager
    def _counted(self, request: ProduceRequest) -> Iterator[None]:
        size = _records_bytes(request)
        self._waiting_count += 1
        self._waiting_bytes += size
        try:
            yield
        finally:
            self._waiting_count -= 1
            self._waiting_bytes -= size

    def _is_suspended(self, request: ProduceRequest) -> bool:
        image = self._cluster.image
        return any(self._cluster.is_suspended(topic_name(image, topic)) for topic in request.topics)

    def _forward_for_a_while(self) -> None:
        self._is_forwarding = True
        self._forwards_until_ms = self._clock.monotonic_ms() + FORWARDED_MS


def _is_led_elsewhere(request: ProduceRequest, image: ClusterImage) -> bool:
    return leading_site(image, [topic_name(image, topic) for topic in request.topics]) is not None


def _records_bytes(request: ProduceRequest) -> int:
    return sum(len(one.records or b"") for topic in request.topics for one in topic.partitions)


def _with_hints(image: ClusterImage, topic: TopicProduced) -> TopicProduced:
    """The other site's results with this broker's hints: the endpoints belong to its listeners."""
    name = topic_name(image, topic)
    return topic._replace(partitions=[_with_hint(image, name, one) for one in topic.partitions])


def _with_hint(image: ClusterImage, topic: str, produced: PartitionProduced) -> PartitionProduced:
    if produced.error_code not in HINTED_ERRORS:
        return produced
    return produced._replace(current_leader=leader_hint(image, topic, produced.partition_index))
