"""Raises of leader epochs to the floors of links: in force at once as one fact, and stored in the
states of the partitions afterwards (decision 170).

Writers of a promotion wait for the raise. It is one znode, whatever the number of partitions, and
one message to the brokers. Every controller applies the raises that it finds stored to the states
that it loads, so that no leader epoch goes back, also where the link has made the site passive
since. The states of partitions are written in the background. A raise ends when each of them has
its leader epoch, in the transaction of the last one or after it.

While a broker of a release without raises is registered, the decision that raises also stores the
states, because that broker's controller would not find the raise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from typing import Final

from controller.core.draft import Draft
from controller.core.state import facts
from controller.core.state.site_values import EpochRaise
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition
from wire.rules.links import carries_the_same

NAME_BYTES_MAX: Final = 400_000
"""Upper bound of the names of topics in one raise, which is one znode: it holds 1 MB."""


def raise_to_floors(draft: Draft, *, former_links: Mapping[str, LinkRecord] | None = None) -> None:
    """Give each partition below its link's floor a leader epoch at the floor; its leader stays the
    same. With the links as of the last raise, nothing is looked at if no floor differs: writers
    wait for a fence, which leaves the floors as they are.
    """
    if former_links is not None and _have_same_floors(former_links, draft.cluster.links):
        store_for_earlier_releases(draft)
        return
    below: dict[int, list[str]] = defaultdict(list)
    for topic in draft.cluster.topics.values():
        floor = draft.cluster.leader_epoch_floor(topic.name)
        if floor > 0 and not draft.cluster.is_deleting(topic.name) and _is_below(draft, topic.partitions(), floor):
            below[floor].append(topic.name)
    for floor, names in sorted(below.items()):
        for topics in _parts(sorted(names)):
            found = EpochRaise(name=_free_name(draft, floor), floor=floor, topics=frozenset(topics))
            draft.record(facts.LeaderEpochsRaised(epoch_raise=found))
            draft.raises.append(found)
    store_for_earlier_releases(draft)


def _have_same_floors(former: Mapping[str, LinkRecord], links: Mapping[str, LinkRecord]) -> bool:
    """True if each topic has the same floor by both."""
    return former.keys() == links.keys() and all(
        (known.active_site, known.leader_epoch_floor) == (link.active_site, link.leader_epoch_floor)
        and carries_the_same(known, link)
        for name, link in links.items()
        for known in (former[name],)
    )


def store_for_earlier_releases(draft: Draft) -> None:
    """Store the states of all raises in this decision while a broker of a release without raises is
    registered. As the next controller it would not find a raise, and elect another leader in an
    epoch that is in use; as a broker it would refuse writes until the states are stored.
    """
    cluster = draft.cluster
    brokers = (*cluster.brokers.values(), *cluster.presumed_dead.values())
    if all(broker.registration.knows_epoch_raises for broker in brokers):
        return
    for _ in tuple(cluster.raises):
        store_some(draft, count_max=len(cluster.leaderships))


def _is_below(draft: Draft, partitions: Iterable[TopicPartition], floor: int) -> bool:
    leaderships = draft.cluster.leaderships
    return any(
        known.leader_epoch < floor for partition in partitions if (known := leaderships.get(partition)) is not None
    )


def _parts(names: list[str]) -> Iterator[list[str]]:
    """The names in parts of which each fits in a znode."""
    part: list[str] = []
    size = 0
    for name in names:
        if part and size + len(name) > NAME_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(name)
        size += len(name)
    if part:
        yield part


def _free_name(draft: Draft, floor: int) -> str:
    names = (f"{floor}-{number}" for number in count())
    return next(name for name in names if name not in draft.cluster.raises)


def store_some(draft: Draft, *, count_max: int) -> None:
    """Store the states of at most so many partitions of the oldest raise, and end the raise if none
    is left. A raise with a topic in quarantine does not end: the topic's leader epochs would go
    back when it is released.
    """
    cluster = draft.cluster
    for name, epoch_raise in tuple(cluster.raises.items()):
        left = (
            partition
            for topic in sorted(epoch_raise.topics & cluster.topics.keys())
            for partition in cluster.topics[topic].partitions()
            if (known := cluster.leaderships.get(partition)) is not None and not known.is_stored
        )
        found = list(islice(left, count_max + 1))
        for partition in found[:count_max]:
            draft.keep_leader(partition, cluster.leaderships[partition].isr)
        if len(found) <= count_max and epoch_raise.topics.isdisjoint(cluster.quarantine):
            draft.record(facts.EpochRaiseEnded(name=name))
        if found:
            return
