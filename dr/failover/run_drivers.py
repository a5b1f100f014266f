"""Finds out which process continues a link's runs that have not ended.

A process that carries out a run repeats its report. Two reads of the same record show whether the
driver is active, independently of the hosts' clocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from dr.failover.core.recorded_run import REFUSED, RUNNING, RunRecord, driver
from dr.failover.run_record import REPORT_INTERVAL_MS
from dr.sites.site_client import SiteClient
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import supersedes

SILENT_AFTER_MS: Final = 5 * REPORT_INTERVAL_MS
"""If the record of a run does not change for this time, its process does not continue the run."""

_Key = tuple[str, int, str]
Answer = TypeVar("Answer")


async def drivers(link: str, clients: Sequence[SiteClient], runs: Sequence[RunRecord]) -> list[str]:
    """Return for each run who carries it on, in a phrase; empty for one that has ended.

    `runs` are the runs that the sites keep, by the time at which they began. Takes SILENT_AFTER_MS
    where the process of one has died.
    """
    going = {_key(run): run for run in runs if run.outcome == RUNNING}
    silent = await _silent(link, clients, going) if going else frozenset()
    record = await _governing(link, clients) if silent else None
    is_confirmed = record is not None and await _is_confirmed(record, clients)
    return [
        driver(
            run,
            is_silent=_key(run) in silent,
            # a run that was refused has changed nothing
            has_later=any(later.outcome != REFUSED for later in runs[number + 1 :]),
            record=record,
            is_confirmed=is_confirmed,
        )
        for number, run in enumerate(runs)
    ]


async def _silent(link: str, clients: Sequence[SiteClient], going: Mapping[_Key, RunRecord]) -> frozenset[_Key]:
    silent = frozenset(going)
    for _ in range(SILENT_AFTER_MS // REPORT_INTERVAL_MS):
        await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
        for run in await _kept(link, clients):
            if (before := going.get(_key(run))) is not None and run != before:
                silent -= {_key(run)}
        if not silent:
            break
    return silent


async def _kept(link: str, clients: Sequence[SiteClient]) -> list[RunRecord]:
    """The runs that the sites keep, without those of sites that do not answer."""
    answers = await asyncio.gather(*(_answer(client.runs(link)) for client in clients))
    return [RunRecord.from_json(text) for texts in answers for text in texts or ()]


async def _governing(link: str, clients: Sequence[SiteClient]) -> LinkRecord | None:
    answers = await asyncio.gather(*(_answer(client.describe_link(link, is_brief=True)) for client in clients))
    governing: LinkRecord | None = None
    for answer in answers:
        if answer is not None and (governing is None or supersedes(answer.record, governing)):
            governing = answer.record
    return governing


async def _is_confirmed(record: LinkRecord, clients: Sequence[SiteClient]) -> bool:
    answers = await asyncio.gather(*(_answer(one.links()) for one in clients if one.name == record.active_site))
    statuses = [status for answer in answers if answer is not None for status in answer.links]
    return any(status.is_confirmed for status in statuses if status.record.name == record.name)


async def _answer(call: Awaitable[Answer]) -> Answer | None:
    """A site's answer; None where it does not answer."""
    try:
        return await call
    except OperationalFailure:
        return None


def _key(run: RunRecord) -> _Key:
    return run.to_site, run.began_at_ms, run.who
