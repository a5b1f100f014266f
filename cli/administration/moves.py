"""Moves of replicas between brokers: propose a plan, begin it, watch it, end its throttle, cancel
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.administration import reassignment, reassignment_directories
from cli.administration.reassignment import Ongoing, Outcome
from cli.administration.reassignment_directories import DONE, ELSEWHERE, MOVING
from cli.administration.reassignment_plan import Replica, UnusablePlan, propose
from cli.shared.failures import missing_topic
from cli.shared.output import error_console
from runtime.process import OperationalFailure
from wire.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient


POLL_INTERVAL_S = 0.3
LOOKS_MAX = 30
"""The maximum number of attempts at a broker that has not received the controller's last change
yet.
"""


class Throttles(NamedTuple):
    """Bytes per second that each broker may use for moves from others, and between its log
    directories; None means no limit.
    """

    moves: int | None
    log_directories: int | None


NO_THROTTLES = Throttles(None, None)


def node_list(replicas: tuple[int, ...]) -> str:
    """Node ids as text."""
    return ", ".join(map(str, replicas))


async def propose_plan(
    client: KafkaClient, topics: list[str] | None, brokers: list[int], replication_factor: int | None
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, tuple[int, ...]]]:
    """The assignment now, and the one that a plan for these brokers would make."""
    metadata = await reassignment.site_metadata(client)
    unknown = [name for name in topics or () if name not in metadata.topics]
    if unknown:
        raise missing_topic(unknown[0])
    absent = [node for node in brokers if node not in metadata.brokers]
    if absent:
        living = ", ".join(map(str, sorted(metadata.brokers)))
        raise OperationalFailure(f"broker {absent[0]} is not there; brokers of this site: {living}")
    everything = reassignment.assignment(metadata)
    chosen = {place: replicas for place, replicas in everything.items() if not topics or place.topic in topics}
    others = [replicas for place, replicas in everything.items() if place not in chosen]
    racks = {node: broker.rack or "" for node, broker in metadata.brokers.items()}
    try:
        after = propose(
            chosen,
            brokers or sorted(metadata.brokers),
            racks=racks,
            replication_factor=replication_factor,
            others=others,
        )
    except UnusablePlan as error:
        raise OperationalFailure(str(error)) from error
    return chosen, after


async def begin_moves(
    client: KafkaClient,
    wanted: dict[TopicPartition, tuple[int, ...]],
    directories: dict[Replica, str],
    *,
    throttles: Throttles,
    is_dry_run: bool,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Begin the moves of a plan, and return the former assignment. OperationalFailure if the plan
    is not possible.
    """
    topics = sorted({place.topic for place in wanted})
    metadata = await reassignment.site_metadata(client, topics)
    before = reassignment.assignment(metadata, wanted)
    moving = await reassignment.ongoing(client)
    before = {
        place: tuple(node for node in replicas if place not in moving or node not in moving[place].adding)
        for place, replicas in before.items()
    }
    brokers = (await client.metadata([])).brokers
    absent = {node for replicas in wanted.values() for node in replicas} - brokers.keys()
    if absent:
        raise OperationalFailure(
            f"broker {min(absent)} is not there; brokers of this site: {node_list(tuple(brokers))}"
        )
    await reassignment_directories.check(client, directories)
    if is_dry_run:
        return before
    if throttles.moves is not None:
        await reassignment.throttle(client, before, wanted, throttles.moves)
    if throttles.log_directories is not None:
        await reassignment.throttle_directories(client, _movers(directories), throttles.log_directories)
    await reassignment_directories.request_directories(client, directories)
    _check_plan(await reassignment.order(client, dict(wanted)), "cannot move")
    await reassignment_directories.report_until_acknowledged(client, directories)
    return before


def _movers(directories: Mapping[Replica, str]) -> set[int]:
    return {replica.node_id for replica in directories}


def _check_plan(outcomes: list[Outcome], what: str) -> None:
    failed = [outcome for outcome in outcomes if outcome.error]
    if failed:
        first = failed[0]
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise OperationalFailure(f"{first.place} {what}: {first.error}: {first.message}{more}")


async def move_states(client: KafkaClient, wanted: dict[TopicPartition, tuple[int, ...]]) -> dict[TopicPartition, str]:
    """The state of each partition: done, moving, or elsewhere."""
    moving: dict[TopicPartition, Ongoing] = await reassignment.ongoing(client)
    metadata = await reassignment.site_metadata(client, sorted({place.topic for place in wanted}))
    now = reassignment.assignment(metadata, wanted)
    return {
        place: MOVING if place in moving else DONE if now[place] == replicas else ELSEWHERE
        for place, replicas in sorted(wanted.items())
    }


async def all_move_states(
    client: KafkaClient, wanted: dict[TopicPartition, tuple[int, ...]], directories: dict[Replica, str]
) -> tuple[dict[TopicPartition, str], dict[Replica, str]]:
    """The state of each move of a plan, asked of the whole site."""
    return await move_states(client, wanted), await reassignment_directories.states(client, directories)


async def watch_moves(
    client: KafkaClient, wanted: dict[TopicPartition, tuple[int, ...]], directories: dict[Replica, str]
) -> None:
    """Show a bar, on a terminal, until nothing of the plan is moving."""
    columns: list[Any] = [
        TextColumn("moving"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("partitions"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=error_console, disable=not error_console.is_terminal) as bar:
        total = len(wanted) + len(directories)
        task = bar.add_task("moving", total=total)
        while True:
            lying = await reassignment_directories.states(client, directories)
            moving_count = len((await reassignment.ongoing(client)).keys() & wanted.keys())
            moving_count += sum(state == MOVING for state in lying.values())
            bar.update(task, completed=total - moving_count)
            if not moving_count:
                break
            await asyncio.sleep(POLL_INTERVAL_S)
    for _ in range(LOOKS_MAX):
        states, lying = await all_move_states(client, wanted, directories)
        elsewhere: list[TopicPartition | Replica] = [place for place, state in states.items() if state != DONE]
        elsewhere += [replica for replica, state in lying.items() if state != DONE]
        if not elsewhere:
            return
        await asyncio.sleep(POLL_INTERVAL_S)
    raise OperationalFailure(f"{elsewhere[0]} does not have the planned replicas: its move was cancelled or replaced")


async def end_throttle(
    client: KafkaClient, wanted: dict[TopicPartition, tuple[int, ...]], directories: dict[Replica, str]
) -> None:
    """Remove the throttle of the moves."""
    topics = {place.topic for place in wanted}
    await reassignment.remove_throttle(client, topics, movers=_movers(directories))


async def cancel_moves(
    client: KafkaClient, named: set[TopicPartition] | None, *, keep: bool, is_dry_run: bool
) -> list[TopicPartition]:
    """Cancel running moves, and return them."""
    moving = await reassignment.ongoing(client)
    places = sorted(place for place in moving if named is None or place in named)
    if is_dry_run:
        return places
    if places:
        _check_plan(await reassignment.order(client, dict.fromkeys(places)), "cannot stay")
    topics = {place.topic for place in named or places}
    if topics and not keep:
        await reassignment.remove_throttle(client, topics)
    return places
