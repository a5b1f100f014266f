"""Metadata: brokers, topics, leaders, as clients must see them (merged with the peers of routed
links).

Behaviour: answers with the addresses of the listener that received the request. While a broker of
the site may just have died, the answer waits a moment for its successors
(`broker/site/suspected_brokers.py`). Topics that this site does not know are looked up at its peers
(`broker/site/unknown_topics.py`). Topics that no site has are created if the request and the broker
allow it; this response has UNKNOWN_TOPIC_OR_PARTITION for them, as from KRaft's brokers. Their
partitions are charged to the client's mutation quota, which throttles the client and never refuses
the request, as in Kafka. Topics whose names a link mirrors are created at the active site only.
From version 12 on a client may name topics by id. An id takes precedence over a name beside it
(Java's client sends an empty name), and in a request with an id all names are ignored. A topic that
is asked for twice is answered once. Topics that the client may not describe are missing from a list
of all; by name and by id they get TOPIC_AUTHORIZATION_FAILED. Versions: 0 to 13.
Encoded by hand (metadata_encoding.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import CLUSTER_ACTION, Authorizer
from broker.handlers.access.client_view import ClientView
from broker.metadata.cluster import Cluster
from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.authorized_operations import ALL_OF_A_TOPIC, ALL_OF_THE_CLUSTER, answered
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.metadata.core.topic_names import is_valid_topic_name
from broker.metadata.metadata_encoding import MetadataCache, MetadataWriter
from broker.metadata.request_context import RequestContext
from broker.quotas.client_throttling import Quotas
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite
from broker.site.suspected_brokers import SuspectedBrokers
from broker.site.topic_creation import COORDINATORS_TOPICS, TopicCreator
from broker.site.unknown_topics import NOTHING_KNOWN, Asked, KnownTopics, ask_peers, unknown_topics
from wire.protocol.streams.frames import decode_request_body
from wire.rules.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = 3
MIN_VERSION = 0
MAX_VERSION = 13

THROTTLE_TIME_FROM: Final = 3
TOPIC_IDS_FROM: Final = 12
NO_TOPIC_ID: Final = bytes(16)


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    authorizer: Authorizer
    cluster: Cluster
    configs: DynamicConfigs
    merged_metadata: MetadataCache
    quotas: Quotas
    suspected_brokers: SuspectedBrokers
    topic_creator: TopicCreator


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer a Metadata request."""
    request = decode_request_body(frame, exchange.header)
    context = exchange.context
    is_doubtful = doors.suspected_brokers.may_concern(exchange.connection) and not context.is_own_tool
    if is_doubtful or _unknown(doors, context, request):
        exchange.defer(_answer_later(doors, exchange, context, request, is_doubtful=is_doubtful))
    else:
        answer(doors, exchange, request, doors.merged_metadata, version=exchange.header.api_version)


def _unknown(doors: Doors, context: RequestContext, request: Any) -> dict[str, list[Asked]]:
    """The topics about which to ask the peers. None for a peer's own request, so that two sites do
    not ask each other in a circle.
    """
    if context.is_forwarded or (_ids(request) and context.api_version < TOPIC_IDS_FROM):
        return {}
    return unknown_topics(doors.cluster.image, [topic for topic in _asked(request) if topic is not None])


async def _answer_later(
    doors: Doors, exchange: Exchange, context: RequestContext, request: Any, *, is_doubtful: bool
) -> None:
    """A busy client may just have lost a leader: the answer waits for the controller's decision, if
    one is expected.
    """
    if is_doubtful:
        await doors.suspected_brokers.settled()
    view = _view(doors, exchange, doors.merged_metadata)

    def may_create(name: str) -> bool:
        if not getattr(request, "allow_auto_topic_creation", True):
            return False
        # the answer to the client logs a denial
        return view is None or (bool(view.described([name])) and view.may_create(name, is_logged=False))

    reported = await ask_peers(
        doors.active_site,
        doors.cluster.image,
        _unknown(doors, context, request),
        may_create=may_create,
    )
    answer(doors, exchange, request, doors.merged_metadata, version=context.api_version, reported=reported)


def answer(
    doors: Doors,
    exchange: Exchange,
    request: Any,
    cache: MetadataCache,
    *,
    version: int,
    reported: KnownTopics = NOTHING_KNOWN,
) -> None:
    """Answer from the cache, merged or not, and with the peers' answers about topics that it does
    not have.
    """
    image, listener, mutation_ms = doors.cluster.image, exchange.connection.listener, 0.0
    view = _view(doors, exchange, cache)
    writer = _writer(request, version, view)
    if request.topics is None or (version == 0 and not request.topics):
        body = (
            cache.full_answer(writer, image, listener)
            if view is None
            else _all_shown(image, writer, cache, view, listener)
        )
    elif version < TOPIC_IDS_FROM and _ids(request):
        body = cache.answer(writer, image, listener, _refused_ids(writer, request))
    else:
        may_create = (
            cache.is_merged
            and doors.configs.current.may_auto_create_topics
            and getattr(request, "allow_auto_topic_creation", True)
        )
        topics, missing, errors = _topics(
            image, writer, cache, _asked(request), reported, may_create=may_create, view=view
        )
        exchange.count_errors(errors)
        if missing:
            mutation_ms = _create(doors, exchange, missing)
        body = cache.answer(writer, image, listener, topics)
    throttle_time_ms = exchange.throttle_time_ms(mutation_ms)
    if throttle_time_ms and version >= THROTTLE_TIME_FROM:
        # responses are cached encoded, and this is their first field
        body = throttle_time_ms.to_bytes(4, "big") + body[4:]
    exchange.reply_body([body], body_size=len(body))


def _view(doors: Doors, exchange: Exchange, cache: MetadataCache) -> ClientView | None:
    """The client's view of the topics; None if the client may see all of them."""
    authorizer = doors.authorizer
    if not authorizer.is_enabled:
        return None
    context = exchange.context
    # in SiteMetadata ClusterAction shows all topics, except to a limited mirror
    shows_all = not cache.is_merged and authorizer.mirror_scope(context) is None
    if shows_all and authorizer.verdict(context, CLUSTER_ACTION).is_allowed:
        return None
    return ClientView(authorizer, context)


def _all_shown(
    image: ClusterImage, writer: MetadataWriter, cache: MetadataCache, view: ClientView, listener: str
) -> bytes:
    """A response with every topic that the client may describe."""
    found = [cache.find(image, name) for name in view.described(cache.names(image))]
    topics = [cache.topic(view.writer_for(writer, topic.name), image, topic) for topic in found if topic is not None]
    return cache.answer(writer, image, listener, topics)


def _create(doors: Doors, exchange: Exchange, names: list[str]) -> float:
    """Start creating the topics; return the client's throttle time for that, in ms. Topics for
    coordinators are not charged to the client.
    """
    begun = doors.topic_creator.request(names, doors.cluster.image)
    permits = doors.quotas.mutation_permits(exchange.context)
    permits.take(doors.configs.current.default_partition_count * len(set(begun) - COORDINATORS_TOPICS))
    return permits.throttle_time_ms


def _writer(request: Any, version: int, view: ClientView | None) -> MetadataWriter:
    asks_for_topics = getattr(request, "include_topic_authorized_operations", False)
    asks_for_the_cluster = getattr(request, "include_cluster_authorized_operations", False)
    return MetadataWriter(
        version,
        topic_operations=answered(ALL_OF_A_TOPIC, is_asked=asks_for_topics),
        cluster_operations=answered(
            ALL_OF_THE_CLUSTER if view is None else view.cluster_operations(), is_asked=asks_for_the_cluster
        ),
    )


def _ids(request: Any) -> list[Any]:
    """The request's topics that have an id."""
    return [entry for entry in request.topics or () if getattr(entry, "topic_id", None) is not None]


def _asked(request: Any) -> list[Asked | None]:
    """The topics that the request names, each once: ids if there are any, else names. None if the
    entry has neither.
    """
    ids = [entry.topic_id for entry in _ids(request)]
    return list(dict.fromkeys(ids or [entry.name for entry in request.topics or ()]))


def _refused_ids(writer: MetadataWriter, request: Any) -> list[bytes]:
    """Versions 10 and 11 have a field for ids, but do not allow requests by id."""
    return [
        writer.topic(
            error=ErrorCode.invalid_request, name=entry.name, topic_id=entry.topic_id.bytes, partitions=(), live=()
        )
        for entry in _ids(request)
    ]


def _topics(
    image: ClusterImage,
    writer: MetadataWriter,
    cache: MetadataCache,
    wanted: Sequence[Asked | None],
    reported: KnownTopics,
    *,
    may_create: bool,
    view: ClientView | None,
) -> tuple[list[bytes], list[str], list[ErrorCode]]:
    """The topics' parts of the response, the names of those to create, and the errors of topics."""
    encoded: list[bytes] = []
    missing: list[str] = []
    errors: list[ErrorCode] = []
    for asked in wanted:
        found = _found(image, cache, asked) or (None if asked is None else reported.get(asked))
        shown_name = asked if isinstance(asked, str) else None if found is None else found.name
        if view is not None and shown_name is not None and not view.may_describe(shown_name):
            errors.append(ErrorCode.topic_authorization_failed)
            encoded.append(_refused(writer, asked))
            continue
        if found is not None:
            topic_writer = writer if view is None else view.writer_for(writer, found.name)
            encoded.append(cache.topic(topic_writer, image, found))
            continue
        error, name, topic_id = ErrorCode.unknown_topic_id, None, NO_TOPIC_ID
        if isinstance(asked, UUID):
            topic_id = asked.bytes
        elif asked is not None:
            name = asked
            is_name = is_valid_topic_name(name)
            error = ErrorCode.unknown_topic_or_partition if is_name else ErrorCode.invalid_topic_exception
            if may_create and is_name and name != CLUSTER_METADATA_TOPIC:
                if view is not None and not view.may_create(name):
                    error = ErrorCode.topic_authorization_failed
                elif passive_link_for_new_topic(image, name) is None:
                    missing.append(name)
        errors.append(error)
        encoded.append(writer.topic(error=error, name=name, topic_id=topic_id, partitions=(), live=()))
    return encoded, missing, errors


def _refused(writer: MetadataWriter, asked: Asked | None) -> bytes:
    """The error for a topic that the client may not describe: it has the name or the id by which
    the client asked, and no operations.
    """
    return MetadataWriter(writer.version).topic(
        error=ErrorCode.topic_authorization_failed,
        name=None if isinstance(asked, UUID) else asked,
        topic_id=asked.bytes if isinstance(asked, UUID) else NO_TOPIC_ID,
        partitions=(),
        live=(),
    )


def _found(image: ClusterImage, cache: MetadataCache, asked: Asked | None) -> TopicImage | None:
    if asked is None:
        return None
    return cache.find_id(image, asked.bytes) if isinstance(asked, UUID) else cache.find(image, asked)
