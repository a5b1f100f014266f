"""Distributes the partitions of a classic consumer group: every member computes the same assignment
from the same snapshot. Pure.

A consumer has threads, one for each stream; a partition belongs to one thread of one consumer.
Java-equal: threads are sorted as text ("c-10" before "c-2"), and round robin assigns partitions by
the `String.hashCode` of "[topic,partition]".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from clients.core.partitioners import java_string_hash
from wire.protocol.ids import PartitionKey
from wire.rules.topic_names import is_internal_topic
from wire.znodes.consumer_znodes import BLACK_LIST, STATIC, ConsumerRegistration

ROUND_ROBIN = "roundrobin"

ThreadsByTopic = Mapping[str, Sequence[str]]
PartitionsByTopic = Mapping[str, Sequence[int]]


class UnequalSubscriptions(Exception):
    """Round robin needs every topic to have the same threads; the message names the differences."""


def consumer_id(group: str, *, host: str, started_ms: int, chance: str) -> str:
    """A consumer's id: group, host, time and eight hexadecimal digits of chance."""
    return f"{group}_{host}-{started_ms}-{chance[:8]}"


def thread_ids(consumer: str, count: int) -> list[str]:
    """A consumer's threads, numbered from 0."""
    if count < 1:
        raise ValueError(f"{count} streams are not usable: at least 1 is needed")
    return [f"{consumer}-{number}" for number in range(count)]


def matches_filter(topic: str, expression: str, *, is_blacklist: bool) -> bool:
    """True if a filter accepts the topic: the expression matches the whole name, and commas mean
    alternatives, as in Kafka's filters.
    """
    found = re.fullmatch(expression.strip().strip('"').replace(" ", "").replace(",", "|"), topic) is not None
    return found != is_blacklist


def streams_by_topic(
    registration: ConsumerRegistration, topics: Sequence[str], *, excludes_internal: bool = True
) -> dict[str, int]:
    """The number of streams that the consumer has for each existing topic."""
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    found = {}
    for expression, count in registration.subscription.items():
        for topic in topics:
            is_hidden = excludes_internal and is_internal_topic(topic)
            if not is_hidden and matches_filter(topic, expression, is_blacklist=registration.pattern == BLACK_LIST):
                found[topic] = count
    return found


def unusable_filter(registration: ConsumerRegistration) -> str:
    """The reason why the topics that match the consumer's filter are unknown; "" if they are
    known.
    """
    if registration.pattern == STATIC:
        return ""
    for expression in registration.subscription:
        try:
            matches_filter("", expression, is_blacklist=False)
        except (re.error, OverflowError, RecursionError) as error:
            return f"{expression!r} is not a regular expression: {error}"
    return ""


def sound_members(
    registrations: Mapping[str, ConsumerRegistration],
    topics: Sequence[str],
    *,
    strategy: str,
    excludes_internal: bool = True,
) -> tuple[dict[str, ConsumerRegistration], dict[str, str]]:
    """The members that take part in a rebalance, and the reason why each other member does not;
    registrations are in the order of their creation.

    One member's mistake must not stop the others: a member with an unusable filter gets nothing,
    and round robin, which needs equal subscriptions, uses that of the first member. Every member
    computes the same.
    """
    sound: dict[str, ConsumerRegistration] = {}
    skipped: dict[str, str] = {}
    first: tuple[str, set[str]] | None = None
    for consumer, registration in registrations.items():
        if reason := unusable_filter(registration):
            skipped[consumer] = reason
            continue
        wanted = streams_by_topic(registration, topics, excludes_internal=excludes_internal)
        if strategy == ROUND_ROBIN and wanted:
            if len(set(wanted.values())) > 1:
                skipped[consumer] = "round robin needs the same number of streams for every topic"
                continue
            if first is None:
                first = consumer, set(wanted)
            elif set(wanted) != first[1]:
                skipped[consumer] = f"round robin needs it to want the topics that {first[0]}, who was first, wants"
                continue
        sound[consumer] = registration
    return sound, skipped


def threads_by_topic(
    registrations: Mapping[str, ConsumerRegistration], topics: Sequence[str], *, excludes_internal: bool = True
) -> dict[str, list[str]]:
    """All threads of the group by topic, sorted as text."""
    found: dict[str, list[str]] = {}
    for consumer, registration in registrations.items():
        for topic, count in streams_by_topic(registration, topics, excludes_internal=excludes_internal).items():
            found.setdefault(topic, []).extend(thread_ids(consumer, count))
    return {topic: sorted(threads) for topic, threads in sorted(found.items())}


def assign_range(threads: ThreadsByTopic, partitions: PartitionsByTopic) -> dict[PartitionKey, str]:
    """Assign each topic's sorted partitions in consecutive ranges to its sorted threads; the first
    threads get one more.
    """
    owners: dict[PartitionKey, str] = {}
    for topic, ids in threads.items():
        listed = sorted(partitions.get(topic, ()))
        fair, extra = divmod(len(listed), len(ids))
        for number, thread in enumerate(ids):
            start = fair * number + min(number, extra)
            for partition in listed[start : start + fair + (number < extra)]:
                owners[topic, partition] = thread
    return owners


def assign_round_robin(threads: ThreadsByTopic, partitions: PartitionsByTopic) -> dict[PartitionKey, str]:
    """Assign all partitions one by one, in the order of the hash of their text.
    UnequalSubscriptions.
    """
    if not threads:
        return {}
    first = next(iter(threads))
    for topic, ids in threads.items():
        if list(ids) != list(threads[first]):
            raise UnequalSubscriptions(
                f"round robin needs the same threads for every topic, but {first} has {', '.join(threads[first])} "
                f"and {topic} has {', '.join(ids)}"
            )
    places = [(topic, partition) for topic in threads for partition in sorted(partitions.get(topic, ()))]
    places.sort(key=lambda place: java_string_hash(f"[{place[0]},{place[1]}]"))
    return dict(zip(places, cycle(sorted(threads[first])), strict=False))


STRATEGIES: Mapping[str, Callable[[ThreadsByTopic, PartitionsByTopic], dict[PartitionKey, str]]] = {
    "range": assign_range,
    ROUND_ROBIN: assign_round_robin,
}
"""The strategies by the values of `partition.assignment.strategy`."""
