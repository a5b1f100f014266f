"""Asks both sites of a link, or its mirror, up to which time all records have arrived: once, or
repeatedly until a given time is reached.

Caller: the command `antipode links complete`; `core/completeness.py` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import grpc

from dr.links.administration import describe_link
from dr.links.core.completeness import Completeness, TopicCompleteness, by_topic
from dr.sites.channels import problem_of
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.mirror_pb2 import DescribeMirrorReply
from wire.rules.links import matches, other_site, supersedes

POLL_S = 0.5

Look = Callable[[Completeness], Awaitable[None]]
Show = Callable[[Sequence[TopicCompleteness]], None]


async def looks_at_sites(link: str, clients: Mapping[str, SiteClient], clock: Clock) -> Look:
    """Queries the link's sites in its current direction. Raises OperationalFailure when neither
    knows the link.
    """
    entries = await describe_link(link, list(clients.values()))
    known = [entry.description.record for entry in entries if entry.description is not None]
    if not known:
        raise OperationalFailure("; ".join(entry.problem for entry in entries))
    record = known[0]
    for one in known[1:]:
        record = one if supersedes(one, record) else record
    target = other_site(record, record.active_site)
    if target not in clients:
        raise OperationalFailure(f"no agent address is known of site {target}, the target of link {link}")
    observer = LinkObserver(link, target=clients[target], source=clients.get(record.active_site), clock=clock)

    async def look(completeness: Completeness) -> None:
        asked_at_ms = clock.now_ms()
        evidence = await observer.evidence()
        # An empty answer would look like a link that carries nothing.
        if evidence.target is None and evidence.source is None:
            raise OperationalFailure(f"{evidence.target_problem}; {evidence.source_problem}")
        completeness.take(evidence, asked_at_ms=asked_at_ms)

    return look


def looks_at_mirror(ask: Callable[[], Awaitable[DescribeMirrorReply]], clock: Clock) -> Look:
    """Queries the link's mirror."""

    async def look(completeness: Completeness) -> None:
        asked_at_ms = clock.now_ms()
        try:
            reply = await ask()
        except grpc.aio.AioRpcError as error:
            raise OperationalFailure(f"the mirror does not answer: {problem_of(error)}") from error
        completeness.take_mirror(reply, asked_at_ms=asked_at_ms)

    return look


async def complete_until(
    look: Look, *, until_ms: int, topics: Sequence[str], timeout_ms: float, clock: Clock, show: Show = lambda _: None
) -> list[TopicCompleteness]:
    """Query until all topics are complete until then, at least once and up to the time-out; return
    their final state.

    A failed query is repeated while there is time; raises OperationalFailure if the last one
    failed.
    """
    completeness = Completeness()
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        try:
            await look(completeness)
        except OperationalFailure:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            await asyncio.sleep(POLL_S)
            continue
        wanted = [one for one in completeness.partitions() if matches(one.topic, whitelist=topics, blacklist=())]
        found = by_topic(wanted, until_ms=until_ms)
        show(found)
        # A mirror that has just started knows no topic yet.
        is_complete = bool(found) and all(one.is_complete for one in found)
        if is_complete or clock.monotonic_ms() >= deadline_ms:
            return found
        await asyncio.sleep(POLL_S)
