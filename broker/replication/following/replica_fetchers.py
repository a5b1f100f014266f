"""Assign partitions to fetchers: one for each broker that leads a replica here. An image listener.

With `num.replica.fetchers` above 1 each source broker has several fetchers; each has its share of
the partitions and a connection of its own. Assignments follow images: a partition with another
leader moves to that leader's fetcher; one that is led here, or that has no leader, has no fetcher.
A fetcher is created when first needed, and ends when the broker stops or its source is
unregistered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from broker.authentication.inter_broker import Secured, plaintext
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_difference import difference
from broker.metadata.core.topic_images import TopicImage
from broker.replication.following.core.follower import fetcher_number
from broker.replication.following.replica_fetcher import ReplicaFetcher
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from runtime.addresses import HostPort
from runtime.clock import Clock
from wire.protocol.ids import PartitionKey

Wanted = dict[tuple[int, int], list[HostedPartition]]
"""Partitions to follow, by source broker and number of its fetcher."""


class ReplicaFetchers:
    """All fetchers of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        cluster: Cluster,
        settings: BrokerSettings,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
        on_lost: Callable[[int], None],
        secured: Secured = plaintext,
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._on_lost = on_lost
        self._secured = secured
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        """The fetchers by source broker and number."""
        self._count = settings.replica_fetcher_count
        self._followed: dict[PartitionKey, tuple[HostedPartition, int]] = {}
        """Partition to its replica here and the leader epoch under which it is followed."""
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._followed)

    def max_lag(self) -> int:
        """Records that the partition furthest behind its leader lacks."""
        return max((fetcher.lag() for fetcher in tuple(self._fetchers.values())), default=0)

    def failing_count(self) -> int:
        """Followed partitions whose last answer could not be used (called from the metrics'
        thread).
        """
        return sum(fetcher.failing_count() for fetcher in tuple(self._fetchers.values()))

    def broken_count(self) -> int:
        """Fetchers whose last round ended in a defect of ours (called from the metrics' thread)."""
        return sum(fetcher.is_broken for fetcher in tuple(self._fetchers.values()))

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Take over a new image (an `ImageListener`)."""
        if self._is_stopped:
            return
        change = difference(before, after)
        if change.deleted or change.changed:
            names = {topic.name for topic in change.changed}
            self._leave_lost(names | {topic.name for topic in change.deleted})
            wanted: Wanted = {}
            for topic in change.changed:
                for hosted in self._hosted(topic.name, self._followable(after, topic)):
                    self._reassign(hosted, wanted)
            self._follow(wanted)
        if before.brokers is not after.brokers:
            await self._end_gone(after)

    def resize(self, count: int) -> None:
        """Set the number of fetchers for each source broker."""
        # a stopped broker's fetchers are gone; new ones would never end
        if count == self._count or self._is_stopped:
            return
        self._count = count
        wanted: Wanted = {}
        for hosted, _ in tuple(self._followed.values()):
            self._leave(hosted.key)
            self._reassign(hosted, wanted)
        self._follow(wanted)

    def _follow(self, wanted: Wanted) -> None:
        for place, partitions in wanted.items():
            self._fetcher(*place).follow(partitions)

    def _followable(self, image: ClusterImage, topic: TopicImage) -> Iterable[int]:
        """The partitions that another broker leads, and those that were followed before: a site
        with one broker follows none of its thousands of partitions.
        """
        led_elsewhere = {index for index, one in topic.partitions.items() if one.leader != image.node_id}
        if not self._followed:
            return led_elsewhere
        return led_elsewhere | {index for name, index in self._followed if name == topic.name}

    def _hosted(self, topic: str, indexes: Iterable[int]) -> Iterator[HostedPartition]:
        for index in indexes:
            hosted = self._replicas.find(topic, index)
            if hosted is not None:
                yield hosted

    def _leave_lost(self, topics: set[str]) -> None:
        """Partitions that were removed from this broker, or that belong to another topic of the
        same name.
        """
        for key, (hosted, _) in tuple(self._followed.items()):
            if key[0] in topics and self._replicas.find(*key) is not hosted:
                self._leave(key)

    def _leave(self, key: PartitionKey) -> None:
        self._followed.pop(key, None)
        for fetcher in self._fetchers.values():
            fetcher.leave(key)

    def _reassign(self, hosted: HostedPartition, wanted: Wanted) -> None:
        state = hosted.state
        known = self._followed.get(hosted.key)
        if known is not None and known == (hosted, state.leader_epoch) and state.is_follower:
            # the same object too: a topic made again has another replica under the same name
            return
        if known is not None:
            self._leave(hosted.key)
        # -1: there is no leader to follow
        if state.is_follower and state.leader >= 0:
            self._followed[hosted.key] = hosted, state.leader_epoch
            place = state.leader, fetcher_number(hosted.topic, hosted.index, count=self._count)
            wanted.setdefault(place, []).append(hosted)

    def _fetcher(self, source: int, number: int) -> ReplicaFetcher:
        found = self._fetchers.get((source, number))
        if found is None:
            found = self._fetchers[source, number] = ReplicaFetcher(
                source,
                self._replicas,
                self._settings,
                self._clock,
                find_address=self.address_of,
                broker_epoch=self._broker_epoch,
                on_lost=self._on_lost,
                secured=self._secured,
            )
        return found

    def look_again(self, hosted: HostedPartition) -> None:
        """Clients have begun to read from this follower: the next fetch reports it to the
        leader.
        """
        for fetcher in self._fetchers.values():
            fetcher.look_again(hosted.key)

    def address_of(self, node_id: int) -> HostPort | None:
        """The address at which the broker serves other brokers: its inter-broker listener, else its
        first one.
        """
        broker = self._cluster.image.brokers.get(node_id)
        if broker is None or not broker.endpoints:
            return None
        wanted = self._settings.inter_broker_listener
        chosen = next((endpoint for endpoint in broker.endpoints if endpoint.listener == wanted), broker.endpoints[0])
        return HostPort(chosen.host, chosen.port)

    async def _end_gone(self, image: ClusterImage) -> None:
        for place in [place for place in self._fetchers if place[0] not in image.brokers]:
            # one that still follows partitions ends with a later image, when these have moved
            if not len(self._fetchers[place]):
                await self._fetchers.pop(place).stop()

    async def stop(self) -> None:
        """Stop all fetchers."""
        self._is_stopped = True
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers))
