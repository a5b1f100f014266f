"""Metadata: brokers, topics, leaders, as clients must see them (merged with the peers of routed links).

Behaviour: answers with the addresses of the listener that was asked. While a broker of the site may just have died, the answer waits a
moment for its successors (`doubts.py`). Topics that this site does not know are asked about at its peers (`unheard_topics.py`). Those
that nobody has are created when the request and the broker allow it, and answered LEADER_NOT_AVAILABLE meanwhile; their partitions
count against the client's quota of mutations, as in Kafka without refusal: it rests. Names that a link carries are created at the
active site only.
Versions: 0 to 13. Encoded by hand (metadata_encoding.py).
Not done: authorized operations (there are no ACLs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from broker.active_site import HANDED_ON_CLIENT_ID
from broker.core.access import passive_link_for_new_topic
from broker.core.cluster_image import ClusterImage, TopicImage
from broker.core.topic_names import is_valid_topic_name
from broker.entities import topic_id_bytes
from broker.metadata_encoding import MetadataCache, MetadataWriter
from broker.services import BrokerServices, RequestContext
from broker.topic_creation import INTERNAL_TOPICS
from broker.unheard_topics import NOTHING_TOLD, Told, ask_peers, unheard_topics
from wire.frames import decode_request_body

if TYPE_CHECKING:
    from broker.connections import Frame
    from broker.dispatch import Exchange

API_KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

THROTTLE_TIME_FROM: Final = 3


def handle_frame(services: BrokerServices, exchange: Exchange, frame: Frame) -> None:
    """Answer a Metadata request."""
    request = decode_request_body(frame, exchange.header)
    context = exchange.context
    is_doubtful = services.doubts.may_concern(exchange.connection) and not context.is_own_tool
    if is_doubtful or _unheard(services, context, request):
        exchange.later(_answer_later(services, exchange, context, request, is_doubtful=is_doubtful))
    else:
        answer(services, exchange, request, services.merged_metadata, version=exchange.header.api_version)


def _unheard(services: BrokerServices, context: RequestContext, request: Any) -> dict[str, list[str]]:
    """What to ask the peers; nothing in answer to a peer, so that two sites do not ask each other in turn."""
    return {} if context.client_id == HANDED_ON_CLIENT_ID else unheard_topics(services.image, request.topics)


async def _answer_later(
    services: BrokerServices, exchange: Exchange, context: RequestContext, request: Any, *, is_doubtful: bool
) -> None:
    """A client that is at work may just have lost a leader: the answer waits for the controller's decision, if there is one to come."""
    if is_doubtful:
        await services.doubts.settled()
    told = await ask_peers(
        services.active_site,
        services.image,
        _unheard(services, context, request),
        may_create=getattr(request, "allow_auto_topic_creation", True),
    )
    answer(services, exchange, request, services.merged_metadata, version=context.api_version, told=told)


def answer(
    services: BrokerServices,
    exchange: Exchange,
    request: Any,
    cache: MetadataCache,
    *,
    version: int,
    told: Told = NOTHING_TOLD,
) -> None:
    """Answer from the cache, merged or not, and by what peers told of topics that it does not have."""
    image, listener, mutation_ms = services.image, exchange.connection.listener, 0.0
    if request.topics is None or (version == 0 and not request.topics):
        body = cache.full_answer(version, image, listener)
    else:
        writer = MetadataWriter(version)
        may_create = (
            cache.is_merged
            and services.config.may_auto_create_topics
            and getattr(request, "allow_auto_topic_creation", True)
        )
        topics, missing = _topics(image, writer, cache, request.topics, told, may_create=may_create)
        if missing:
            mutation_ms = _create(services, exchange, missing)
        body = cache.answer(writer, image, listener, topics)
    rest_ms = exchange.rest_ms(mutation_ms)
    if rest_ms and version >= THROTTLE_TIME_FROM:
        body = rest_ms.to_bytes(4, "big") + body[4:]  # answers are kept encoded, and this is their first field
    exchange.answer_body([body], body_size=len(body))


def _create(services: BrokerServices, exchange: Exchange, names: list[str]) -> float:
    """Begin to create the topics; how long the client rests for that, in ms. What coordinators need is no client's doing."""
    begun = services.topic_creator.request(names, services.image)
    permits = services.quotas.mutation_permits(exchange.context)
    permits.take(services.config.default_partition_count * len(set(begun) - INTERNAL_TOPICS))
    return permits.rest_ms


def _topics(
    image: ClusterImage,
    writer: MetadataWriter,
    cache: MetadataCache,
    wanted: Sequence[Any],
    told: Told,
    *,
    may_create: bool,
) -> tuple[list[bytes], list[str]]:
    """The topics' parts of the answer, and the names of those that are to be created."""
    encoded: list[bytes] = []
    missing: list[str] = []
    for entry in wanted:
        topic_id = topic_id_bytes(getattr(entry, "topic_id", None))
        name: str | None = entry.name if entry.name is not None else image.topic_names.get(topic_id)
        found = None if name is None else cache.find(image, name)
        if found is not None:
            encoded.append(cache.topic(writer, image, found))
            continue
        answered = None if name is None else told.get(name)
        if isinstance(answered, TopicImage):
            encoded.append(cache.topic(writer, image, answered))
            continue
        error = answered or (
            ErrorCode.unknown_topic_id if name is None else _missing_error(image, name, may_create=may_create)
        )
        if answered is None and error is ErrorCode.leader_not_available and name is not None:
            missing.append(name)
        encoded.append(writer.topic(error=error, name=name, topic_id=topic_id, partitions=(), live=()))
    return encoded, missing


def _missing_error(image: ClusterImage, name: str, *, may_create: bool) -> ErrorCode:
    if not is_valid_topic_name(name):
        return ErrorCode.invalid_topic_exception
    if not may_create or passive_link_for_new_topic(image, name) is not None:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.leader_not_available
