"""Reports changes of topics to the peers' brokers before the client that made them gets its answer.

Clients of a routed link see one cluster and ask any broker of both sites, so all brokers must know
a change that one of them has confirmed. Views come only each second; a report (TopicsChanged,
`wire/protocol/messages/private.py`) names only the changed topics and goes to every broker of the
peer at once. The handlers of requests that change topics call `report` and wait for it.

A response waits at most `ANSWER_WAIT_MS` for an unreachable peer. It does not wait for a broker
that left an earlier report unanswered: such a broker gets reports in the background, one at a time,
until it answers again. Changes that it misses come with its next view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from broker.authentication.inter_broker import Secured, plaintext
from broker.metadata.core.access import passive_link_for_new_topic
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import TopicImage
from broker.network.entities import topic_uuid
from broker.site.active_site import site_brokers
from runtime.addresses import HostPort
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.client.client_errors import KafkaClientError
from wire.client.connection import ConnectionOptions
from wire.client.connection_pool import ConnectionPool
from wire.protocol.messages.topics_changed_messages import TOPICS_CHANGED
from wire.rules.topic_names import is_internal_topic

log = get_logger(__name__)

ANSWER_WAIT_MS: Final = 1_000
REPORT_TIMEOUT_MS: Final = 5_000
"""Time (ms) after which a report in the background is given up."""
IN_FLIGHT_MAX: Final = 100
CLIENT_ID: Final = "antipode-peer-news"


class TopicChangeReports:
    """Connections to the brokers of peers for reports alone: a request that was handed on may be
    what a report completes.
    """

    def __init__(self, secured: Secured = plaintext) -> None:
        options = ConnectionOptions(
            client_id=CLIENT_ID,
            connect_timeout_ms=REPORT_TIMEOUT_MS,
            request_timeout_ms=REPORT_TIMEOUT_MS,
            in_flight_max=IN_FLIGHT_MAX,
        )
        self._pool = ConnectionPool(options, secured)
        self._under_way: dict[HostPort, set[asyncio.Task[None]]] = {}
        self._silent: set[HostPort] = set()
        """Brokers that left a report without an answer."""

    async def report(
        self, image: Callable[[], ClusterImage], changed: Iterable[str], deleted: Mapping[str, bytes] | None = None
    ) -> None:
        """Report the topics as the newest image has them, and those deleted, name to id.

        Returns when all brokers of the peers know, after `ANSWER_WAIT_MS` at the latest.
        """
        newest = image()
        # without routed links no client of a peer asks here
        sites = newest.routed_sites()
        if not sites:
            return
        named = [newest.topics[name] for name in changed if name in newest.topics]
        parts = [_part(topic) for topic in named if _is_for_peers(newest, topic.name)]
        parts += [
            _deleted_part(name, topic_id) for name, topic_id in (deleted or {}).items() if _is_for_peers(newest, name)
        ]
        if not parts:
            return
        values = {"site": newest.site, "topics": parts}
        addresses = {address for site in sites for address in site_brokers(newest, site)}
        # brokers that are gone need no memory of their silence
        self._silent &= addresses
        waited = [task for address in sorted(addresses) if (task := self._begin(address, values)) is not None]
        if waited:
            await asyncio.wait(waited, timeout=ANSWER_WAIT_MS / 1000)

    def _begin(self, address: HostPort, values: Mapping[str, Any]) -> asyncio.Task[None] | None:
        """Start to report to a broker; the task if it is to be waited for."""
        under_way = self._under_way.setdefault(address, set())
        is_silent = address in self._silent
        if is_silent and under_way:
            log.info("a silent broker of the peer gets no report", broker=str(address))
            return None
        task = in_background("reports to peers", self._report(address, values))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        if is_silent:
            log.info("response does not wait for a silent broker of the peer", broker=str(address))
            return None
        return task

    async def _report(self, address: HostPort, values: Mapping[str, Any]) -> None:
        # noted while the report goes on: later answers need not wait for this broker
        silent_at = asyncio.get_running_loop().call_later(ANSWER_WAIT_MS / 1000, self._note_silence, address)
        try:
            await (await self._pool.get(address)).call(TOPICS_CHANGED, values)
        except KafkaClientError as error:
            log.warning("changes could not be reported to a broker of the peer", broker=str(address), reason=str(error))
        else:
            self._silent.discard(address)
        finally:
            silent_at.cancel()

    def _note_silence(self, address: HostPort) -> None:
        if address not in self._silent:
            log.warning(
                "responses do not wait for a slow broker of the peer",
                broker=str(address),
                waited_ms=ANSWER_WAIT_MS,
            )
        self._silent.add(address)

    async def close(self) -> None:
        """Cancel the reports that are under way and close all connections."""
        tasks = [task for under_way in self._under_way.values() for task in under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()


def _is_for_peers(image: ClusterImage, topic: str) -> bool:
    """True if clients of a peer may be led to this site for the topic: not to a copy, nor to an
    internal topic.
    """
    return not is_internal_topic(topic) and passive_link_for_new_topic(image, topic) is None


def _part(topic: TopicImage) -> dict[str, Any]:
    partitions = [
        {
            "index": partition.index,
            "leader_id": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
        }
        for partition in topic.partitions.values()
    ]
    return {"name": topic.name, "topic_id": topic_uuid(topic.topic_id), "partitions": partitions}


def _deleted_part(name: str, topic_id: bytes) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_uuid(topic_id), "is_deleted": True, "partitions": ()}
