"""Translate links whose lines to one end or to both have faults, and what must hold meanwhile and
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from tests.support.clients.steady_batches import SteadyBatches
from tests.support.eventually import eventually
from tests.support.pairs.link_faults import (
    HEALED_AT_ONCE_WITHIN_MS,
    HEALED_WITHIN_MS,
    LINE_FAULTS,
)
from tests.support.pairs.many_lines import (
    LINE,
    QUICK,
    StruckLink,
    links_at_once,
    load_of,
    strike_all,
)
from tests.support.pairs.mirror_calls import keeps_up
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    create_topic,
    demand_surplus_is_counted,
    read_partition,
    stable_ends,
    start_translate_mirror,
    surplus_records,
    total_end,
    wait_equal,
)
from tests.support.processes.apache_kafka import start_kafka_with_lines
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Proxy, Toxiproxy
from wire.client.client_errors import KafkaClientError

PARTITIONS = 3
SEQUENCES: dict[str, str] = {}
KAFKA, ANTIPODE = "apache kafka", "antipode"


class LinkEnd(NamedTuple):
    """A cluster, and the lines to it if they are struck."""

    bootstrap: str
    lines: Sequence[Proxy]

    def address(self, number: int) -> str:
        """The address that the mirror of a link connects to."""
        return self.lines[number].address if self.lines else self.bootstrap


async def start_end(
    kind: str, name: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy, lines: int
) -> LinkEnd:
    if kind == ANTIPODE:
        site = await start_lone_site(processes, tmp_path, name, toxiproxy=toxiproxy, lines=lines)
        return LinkEnd(site.bootstrap, site.lines)
    kafka, proxies = start_kafka_with_lines(processes, tmp_path / name, toxiproxy, lines)
    return LinkEnd(kafka.bootstrap_servers, proxies)


async def start_ends(
    kinds: tuple[str, str], faulty: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy, lines: int
) -> tuple[LinkEnd, LinkEnd]:
    """Source and target, with so many lines to the faulty one or to both."""
    source, target = [
        await start_end(kind, end, processes, tmp_path, toxiproxy, lines if faulty in (end, "both") else 0)
        for kind, end in zip(kinds, ("source", "target"), strict=True)
    ]
    return source, target


def name_of(tmp_path: Path) -> str:
    return tmp_path.name.lower().replace("_", "-")


async def translate_link_under(
    links: Sequence[StruckLink],
    lasting_s: float,
    ends: tuple[str, str],
    settings: Mapping[str, str],
    processes: Processes,
    tmp_path: Path,
) -> None:
    source, target = ends
    topic = f"lines-{name_of(tmp_path)}"
    await create_topic(source, topic, PARTITIONS)
    given = {"whitelist": topic, "link.name": topic, **QUICK, **settings}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, given)
    for link in links:
        async with SteadyBatches(source, topic, PARTITIONS, batches_per_second=40) as load:
            await load.wait_for(2)
            await link.strike(lasting_s)
        await wait_equal(source, target, topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
        print(f"passed {link} for {lasting_s} s", flush=True)
    await demand_surplus_is_known(mirror, target, topic, settings)


async def translate_links_under(
    faulty: str,
    lasting_s: float,
    kinds: tuple[str, str],
    settings: Mapping[str, str],
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """A link, a mirror and a line (or one to each end) for each fault, all at once."""
    source, target = await start_ends(kinds, faulty, processes, tmp_path, toxiproxy, len(LINE_FAULTS))
    links = links_at_once(source.lines, target.lines)
    name = name_of(tmp_path)
    loads: list[SteadyBatches] = []
    mirrors: list[RunningProcess] = []
    seen: dict[int, Sequence[int]] = {}
    async with AsyncExitStack() as running:
        for number, link in enumerate(links):
            topic = f"{name}-{number}"
            await create_topic(source.bootstrap, topic, PARTITIONS)
            given = {"whitelist": topic, "link.name": topic, **LINE, **settings}
            ends = source.address(number), target.address(number)
            mirrors.append(start_translate_mirror(processes, tmp_path, f"mirror-{number}", *ends, given))
            load = load_of(link, source.bootstrap, topic, PARTITIONS)
            loads.append(await running.enter_async_context(load))
            await load.wait_for(PARTITIONS)
            await has_as_many(source.bootstrap, target.bootstrap, topic, within_ms=HEALED_WITHIN_MS)

        async def mirrored(number: int) -> object:
            copy = f"a.{name}-{number}"
            if number not in seen:
                seen[number] = await stable_ends(target.bootstrap, copy, PARTITIONS)
            return await seen_since(target.bootstrap, copy, seen[number])

        async def heal(number: int) -> None:
            await loads[number].stop()
            topic = f"{name}-{number}"
            ends = source.bootstrap, target.bootstrap
            await has_as_many(*ends, topic, within_ms=HEALED_AT_ONCE_WITHIN_MS)
            await wait_equal(*ends, topic, PARTITIONS, within_ms=HEALED_AT_ONCE_WITHIN_MS)
            await demand_surplus_is_known(mirrors[number], target.bootstrap, topic, settings)
            mirrors[number].kill()  # this mirror has nothing left to do; the others continue

        for mirror in mirrors:
            await keeps_up(mirror, HEALED_AT_ONCE_WITHIN_MS)
        await strike_all(links, lasting_s, mirrored=mirrored, heal=heal)


async def demand_surplus_is_known(mirror: RunningProcess, target: str, topic: str, settings: Mapping[str, str]) -> None:
    """No read-committed reader sees a record twice; other readers see at most as many repetitions
    as the mirror reports.
    """
    if settings is SEQUENCES:
        assert not any((await surplus_records(mirror, topic)).values())
    else:
        await demand_surplus_is_counted(mirror, target, topic, PARTITIONS)


async def seen_since(bootstrap: str, topic: str, first: Sequence[int]) -> int:
    """The number of records that a read-committed reader finds from these offsets on; markers and
    aborted records do not count.
    """
    count = 0
    for index, end in enumerate(await stable_ends(bootstrap, topic, PARTITIONS)):
        if end > first[index]:
            found = await read_partition(bootstrap, topic, index, first_offset=first[index])
            count += sum(offset >= first[index] for offset in found.offsets)
    return count


async def has_as_many(source: str, target: str, topic: str, *, within_ms: float) -> None:
    """Wait until the target's logs are as long as the source's are now: it can have as many
    records, and has them if nothing else is there.
    """
    goal = await total_end(source, topic, PARTITIONS)

    async def has_them() -> bool:
        try:
            found = await total_end(target, f"a.{topic}", PARTITIONS)
        except KafkaClientError as error:
            raise AssertionError(f"no answer yet: {error!r}") from error
        assert found >= goal, f"{found} of {goal} records of {topic}"
        return True

    await eventually(has_them, within_ms)
