"""Administration of topics that the other site of a link leads: requests are handed on to a broker
there, answers handed back.

Clients see the brokers of both sites as one cluster. They send CreateTopics, DeleteTopics,
CreatePartitions, reassignments and config requests to any of them, so a passive site must forward
these requests. Used by the handlers of these requests, when everything that a request names is led
elsewhere. A request about topics of several sites is answered in parts, one for each site
(`in_parts`). A request that was forwarded once is not forwarded again: two sites may take each
other for the active one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.authentication.inter_broker import Secured, plaintext
from broker.metadata.cluster import Cluster
from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import FORWARDED_CLIENT_ID, RequestContext
from broker.network.entities import allowed_ms
from runtime.addresses import HostPort
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError, UnsupportedApi
from wire.client.cluster_metadata import ClusterMetadata, TopicMetadata
from wire.client.connection import Connection, ConnectionOptions
from wire.client.connection_pool import ConnectionPool
from wire.client.requests.answer_checks import check_outcome
from wire.client.requests.broker_requests import METADATA, request_metadata
from wire.control.cluster_pb2 import BrokerInfo
from wire.protocol import schemas
from wire.protocol.messages.delegation_token_messages import CLIENT_TOKEN_REQUEST
from wire.rules.links import other_site

log = get_logger(__name__)

Answer = TypeVar("Answer")


LINK_LISTENER: Final = "LINK"
TIMEOUT_MS: Final = 8_000
"""The limit (ms) for all attempts together, over every broker and for any timeout of the client:
less than ten seconds, after which a person at a command stops waiting. The error then names the
silent site. A request for many new partitions may take longer.
"""
READ_TIMEOUT_MS: Final = 2_000
"""The limit (ms) of a request that reads: short, because this site can answer from its copy."""
NEW_PARTITION_MS: Final = 5
"""The time (ms) that the other site may take for each new partition: its controller stores it, and
its brokers make a log for it.
"""
ANSWERED_WITHIN_MS: Final = 3_000
"""Time (ms) after the client's own timeout in which the other site may answer: it also waits until
its brokers, and those of this site, know of the change.
"""


class ActiveSite:
    """Connections to the brokers of peers, opened when first needed."""

    def __init__(self, secured: Secured = plaintext) -> None:
        options = ConnectionOptions(client_id=FORWARDED_CLIENT_ID, request_timeout_ms=TIMEOUT_MS)
        self._pool = ConnectionPool(options, secured)

    async def answer(
        self,
        image: ClusterImage,
        context: RequestContext,
        request: Any,
        topics: Collection[str],
        *,
        timeout_ms: float | None = None,
    ) -> Any | None:
        """The active site's answer, None when the request is for this site or no broker there
        answers in time.

        Without `timeout_ms` that is the time which the client allows, if its request names one.
        """
        # a forwarded request is never forwarded again: two sites with different views could send it
        # in a circle
        if context.is_forwarded:
            return None
        return await self._is_forwarded(active_brokers(image, topics), context, request, timeout_ms)

    async def ask_site(
        self,
        image: ClusterImage,
        site: str,
        context: RequestContext,
        request: Any,
        *,
        timeout_ms: float | None = None,
    ) -> Any | None:
        """The answer of any broker of the site, None when none answers in time;
        `timeout_ms` as above.
        """
        if context.is_forwarded:
            return None
        return await self._is_forwarded(site_brokers(image, site), context, request, timeout_ms)

    async def ask_about_tokens(
        self, image: ClusterImage, site: str, context: RequestContext, request: Any
    ) -> Any | None:
        """The site's answer to a client's request about delegation tokens, which depends on the
        client's principal; None when no broker there answers in time.
        """
        key, version = context.api_key, context.api_version

        async def ask(connection: Connection) -> Any:
            asked = {
                "principal_type": context.principal.type,
                "principal_name": context.principal.name,
                "client_address": context.client_address,
                "request_key": key,
                "request_version": version,
                "request": schemas.encode(request),
            }
            answer = await connection.call(CLIENT_TOKEN_REQUEST, asked)
            check_outcome(answer, connection, CLIENT_TOKEN_REQUEST)
            with connection.trusting():
                return schemas.decode(schemas.response_type(key, version), answer.response)

        return await self._first_answer(site_brokers(image, site), key, ask, TIMEOUT_MS)

    async def topics_of(
        self, image: ClusterImage, site: str, topics: Sequence[str | UUID], *, may_create: bool, timeout_ms: float
    ) -> Iterable[TopicMetadata]:
        """Return one broker's answer about the topics (names, or ids) of the site; nothing when no
        broker there answers in time.
        """

        async def ask(connection: Connection) -> ClusterMetadata:
            answer = await request_metadata(connection, topics, is_site_local=False, may_create=may_create)
            return answer.metadata

        found = await self._first_answer(site_brokers(image, site), METADATA, ask, timeout_ms)
        return () if found is None else found.topics.values()

    async def _is_forwarded(
        self, addresses: Iterable[HostPort], context: RequestContext, request: Any, timeout_ms: float | None
    ) -> Any | None:
        within_ms = answer_within_ms(request) if timeout_ms is None else timeout_ms

        async def ask(connection: Connection) -> Any:
            return await _ask_the_same(connection, context, request, timeout_ms=within_ms)

        return await self._first_answer(addresses, context.api_key, ask, within_ms)

    async def _first_answer(
        self,
        addresses: Iterable[HostPort],
        api_key: int,
        ask: Callable[[Connection], Awaitable[Answer]],
        timeout_ms: float,
    ) -> Answer | None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                for address in addresses:
                    # in turn and not at once: a change must reach one broker only
                    try:
                        return await ask(await self._pool.get(address))
                    except KafkaClientError as error:
                        _log_failure(api_key, str(error), to=str(address))
        except TimeoutError:
            _log_failure(api_key, f"no answer within {timeout_ms:g} ms")
        return None

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


def answer_within_ms(request: Any) -> float:
    """Return the time (ms) that the other site may take to answer."""
    timeout = getattr(request, "timeout", None)
    if timeout is None:
        return TIMEOUT_MS
    limit_ms = max(TIMEOUT_MS, NEW_PARTITION_MS * _named_partitions(request))
    return min(allowed_ms(timeout) + ANSWERED_WITHIN_MS, limit_ms)


def _named_partitions(request: Any) -> int:
    """The partitions that a CreateTopics or CreatePartitions request names; 0 for others."""
    topics = getattr(request, "topics", None) or ()
    return sum(
        max(
            getattr(topic, "num_partitions", 0),
            getattr(topic, "count", 0),
            len(getattr(topic, "assignments", None) or ()),
        )
        for topic in topics
    )


async def _ask_the_same(connection: Connection, context: RequestContext, request: Any, *, timeout_ms: float) -> Any:
    version = connection.version_for(context.api_key, highest=context.api_version)
    # another version could lack fields, and the response goes to the client as it is
    if version != context.api_version:
        raise UnsupportedApi(f"version {context.api_version}", node=str(connection.address), api_key=context.api_key)
    body = schemas.encode(request)
    answer = await connection.request(context.api_key, version, [body], body_size=len(body), timeout_ms=timeout_ms)
    return schemas.decode(schemas.response_type(context.api_key, version), answer.frame, answer.body_position)


def _log_failure(api_key: int, reason: str, **where: str) -> None:
    log.warning("a request could not be forwarded", api_key=api_key, reason=reason, **where)


async def in_parts(
    image: ClusterImage,
    context: RequestContext,
    request: Any,
    handle: Callable[[Any], Awaitable[Any]],
    *,
    entries: str,
    results: str,
    names: Sequence[str],
) -> Any | None:
    """The answer to a request about topics that several sites lead, put together from one for each
    site; None when one site leads all.

    `handle` answers a request about topics of one site. `entries` is the request's field with one
    entry for each of `names` (empty: the entry is not about a topic), `results` that of the
    response.
    """
    if context.is_forwarded:
        return None
    by_site: dict[str | None, list[Any]] = {}
    for entry, name in zip(getattr(request, entries), names, strict=True):
        by_site.setdefault(leading_site(image, [name]), []).append(entry)
    # one site has all entries: the request is forwarded or handled as a whole
    if len(by_site) < 2:
        return None
    answers = [await handle(replace(request, **{entries: tuple(part)})) for part in by_site.values()]
    fields = {results: tuple(result for answer in answers for result in getattr(answer, results))}
    # each part may be throttled, and the client should wait for the longest time
    if hasattr(answers[0], "throttle_time"):
        fields["throttle_time"] = max(answer.throttle_time for answer in answers)
    failed = (answer for answer in answers if getattr(answer, "error_code", ErrorCode.none) is not ErrorCode.none)
    return replace(next(failed, answers[0]), **fields)


class SiteDoors(Protocol):
    """The parts that a handler of requests about topics of any site has at least."""

    @property
    def active_site(self) -> ActiveSite:
        """The way to the sites that lead the topics."""

    @property
    def cluster(self) -> Cluster:
        """The image that shows these sites."""


DoorsT = TypeVar("DoorsT", bound=SiteDoors)


async def answered_elsewhere(
    request: Any,
    context: RequestContext,
    doors: DoorsT,
    handle: Callable[[Any, RequestContext, DoorsT], Awaitable[Any]],
    *,
    entries: str,
    results: str,
    names: Sequence[str],
    timeout_ms: float | None = None,
) -> Any | None:
    """The answer to a request about topics of other sites: in parts where several sites lead them
    (`in_parts`), each of which `handle` answers, else the active site's (`ActiveSite.answer`); None
    when this site answers.
    """
    image = doors.cluster.image

    def handle_part(part: Any) -> Awaitable[Any]:
        return handle(part, context, doors)

    answer = await in_parts(image, context, request, handle_part, entries=entries, results=results, names=names)
    return answer or await doors.active_site.answer(image, context, request, names, timeout_ms=timeout_ms)


def leading_site(image: ClusterImage, topics: Collection[str]) -> str | None:
    """The one other site that leads all these topics; None if no single site does, or if an entry
    is not about a topic.
    """
    sites = {_leading_site(image, topic) if topic else None for topic in topics}
    return next(iter(sites)) if len(sites) == 1 else None


def _leading_site(image: ClusterImage, topic: str) -> str | None:
    link = passive_link_for_new_topic(image, topic)
    if link is None:
        # a topic without a link may exist at one other site only, which then answers for it
        return image.only_site_with(topic)
    return other_site(link, image.site) if link.is_routed else None


def active_brokers(image: ClusterImage, topics: Collection[str]) -> list[HostPort]:
    """The addresses of the brokers of the one active site that leads all these topics; empty if no
    single site does.
    """
    site = leading_site(image, topics)
    return [] if site is None else site_brokers(image, site)


def site_brokers(image: ClusterImage, site: str) -> list[HostPort]:
    """The addresses of a peer site's brokers; empty before its first view."""
    view = image.peers.get(site)
    found = [link_address(broker) for broker in view.brokers] if view is not None else []
    return [address for address in found if address is not None]


def link_address(broker: BrokerInfo) -> HostPort | None:
    """The address of a peer's broker for links; None if it has none."""
    endpoints = {endpoint.listener: HostPort(endpoint.host, endpoint.port) for endpoint in broker.endpoints}
    # the listener for links first: others may be reachable inside the site only
    return endpoints.get(LINK_LISTENER) or next(iter(endpoints.values()), None)
