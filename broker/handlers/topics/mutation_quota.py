"""The quota of partitions that the other site of a link creates or deletes for a client.

The broker that is asked counts them: the other site sees this broker, and not its client. Such a
request is carried out or refused as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.request_context import RequestContext
from broker.network.entities import throttle_time
from broker.network.error_responses import error_response
from broker.quotas.client_throttling import QUOTA_EXCEEDED_MESSAGE
from broker.quotas.core.client_quotas import MutationPermits
from broker.site.active_site import leading_site

Ask = Callable[[], Awaitable[Any | None]]


def is_led_elsewhere(image: ClusterImage, context: RequestContext, names: Collection[str]) -> bool:
    """True if one other site leads all these topics, to which the request is handed on."""
    return not context.is_forwarded and leading_site(image, names) is not None


def known_topic(image: ClusterImage, name: str) -> TopicImage | None:
    """The topic as the site that leads it has it, else the copy here; None if neither is known."""
    routed = image.routed_topic(name)
    return image.topics.get(name) if routed is None else routed.topic


async def within_quota(
    context: RequestContext, request: Any, permits: MutationPermits, partitions: int, ask: Ask
) -> Any | None:
    """The other site's answer by `ask`, with the client's throttle time; None without one. A client
    above its quota is refused.
    """
    if permits.take(partitions):
        answer = await ask()
    else:
        error, message = ErrorCode.throttling_quota_exceeded, QUOTA_EXCEEDED_MESSAGE
        answer = error_response(context.api_key, context.api_version, request, error=error, message=message)
    if answer is None or not permits.throttle_time_ms:
        return answer
    return replace(answer, throttle_time=max(answer.throttle_time, throttle_time(permits.throttle_time_ms)))
