"""Elects leaders: one pure function per situation, whose arguments are the assigned replicas, the
in-sync replicas and the living brokers. Each returns an `Election`, or `NoLeader` with the reason.
These functions raise no epochs and write nothing: the caller does, so that the same function serves
a live decision and a dry run. Order always follows the assignment, whose first replica is
preferred.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct


class Election(Struct, frozen=True, kw_only=True):
    """The chosen leader and the in-sync replicas that go with it."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False


class NoLeader(Struct, frozen=True):
    """No replica may lead, and why."""

    reason: str


def elect_first(*, replicas: Sequence[int], live: Collection[int]) -> Election | NoLeader:
    """First leader of a new partition: every living replica is in sync because there is no data
    yet.
    """
    alive = tuple(node for node in replicas if node in live)
    if not alive:
        return NoLeader(f"no replica of {list(replicas)} is alive")
    return Election(leader=alive[0], isr=alive)


def elect_offline(
    *, replicas: Sequence[int], isr: Collection[int], live: Collection[int], may_be_unclean: bool
) -> Election | NoLeader:
    """Leader of a partition whose leader is gone: an in-sync replica, or any living one if data
    loss is allowed.
    """
    in_sync = tuple(node for node in isr if node in live)
    for node in replicas:
        if node in in_sync:
            # the in-sync replicas without the dead ones: a dead one that returns must catch up
            # first
            return Election(leader=node, isr=in_sync)
    if not may_be_unclean:
        return NoLeader(f"no in-sync replica of {sorted(isr)} is alive")
    for node in replicas:
        if node in live:
            # alone in sync: the others may have records that this one lacks
            return Election(leader=node, isr=(node,), is_unclean=True)
    return NoLeader(f"no replica of {list(replicas)} is alive")


def elect_preferred(
    *, leader: int, replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> Election | NoLeader:
    """The first assigned replica, if it is alive and in sync and is not the leader."""
    preferred = replicas[0]
    if leader == preferred:
        return NoLeader(f"the preferred replica {preferred} is already the leader")
    # one that is not in sync lacks acknowledged records
    if preferred not in live or preferred not in isr:
        return NoLeader(f"the preferred replica {preferred} is not alive and in sync")
    return Election(leader=preferred, isr=tuple(isr))


def elect_at_controlled_shutdown(
    *, replicas: Sequence[int], isr: Collection[int], live: Collection[int], leaving: Collection[int]
) -> Election | NoLeader:
    """A leader among the brokers that stay; the stopping brokers leave the in-sync replicas."""
    staying = tuple(node for node in isr if node not in leaving)
    for node in replicas:
        if node in staying and node in live:
            # stopping brokers leave the in-sync replicas at once, else acks=all would wait for them
            return Election(leader=node, isr=staying)
    return NoLeader(f"no in-sync replica remains when brokers {sorted(leaving)} leave")


def elect_reassigned(
    *, target_replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> Election | NoLeader:
    """The first replica of the new assignment that is alive and in sync; the in-sync replicas stay
    as they are.
    """
    if not target_replicas:
        return NoLeader("the new assignment is empty")
    for node in target_replicas:
        if node in live and node in isr:
            return Election(leader=node, isr=tuple(isr))
    return NoLeader(f"no replica of the new assignment {list(target_replicas)} is alive and in sync")
