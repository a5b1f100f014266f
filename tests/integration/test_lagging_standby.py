"""A failover from a lost site whose standby lagged by its last report."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dr.failover.core.recorded_run import RunRecord
from dr.failover.core.steps import FailoverPolicy
from dr.failover.execution import failover
from dr.failover.journal import read_journal
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.eventually import eventually
from tests.support.pairs.full_sites import LINK, LinkedSites

pytestmark = pytest.mark.integration

RECORDS = 12
SLOW = {"antipode.throttle.bytes.per.second": "1", "max.partition.fetch.bytes": "1024"}
"""The first fetch brings the source's end with the first batch, and the next one waits for
minutes.
"""


async def test_f3_a_standby_that_lags_by_more_than_is_allowed_is_promoted_only_by_a_person_who_allows_it(
    sites: LinkedSites, tmp_path: Path
) -> None:
    await sites.link()
    await sites.create_topic("flights")

    async def takes_writes() -> bool:
        return [one.is_writable for one in (await sites.describe("a")).partitions] == [True]

    await eventually(takes_writes)
    for number in range(RECORDS):
        record = Record(value=b"%d" % number * 600)
        await asyncio.to_thread(librdkafka_produce, sites.a.bootstrap, "flights", [record])
    mirror = sites.start_mirror(settings=SLOW)

    async def known() -> tuple[int, int]:
        (copy,) = (await sites.describe("b")).partitions
        return copy.log_end_offset, copy.source_high_watermark

    async def knows_the_lag() -> bool:
        described = (await sites.describe("b")).partitions
        return bool(described) and 0 < described[0].log_end_offset < described[0].source_high_watermark

    await eventually(knows_the_lag)
    mirror.kill()
    sites.a.process.kill()
    end, source_end = await known()
    lag = source_end - end
    assert source_end == RECORDS
    strict = FailoverPolicy(lag_records_max=lag - 1, settle_ms=200)
    refused = await failover(LINK, to_site="b", agents=sites.agents, policy=strict)
    assert refused.outcome == "refused", refused
    assert f"{lag} records known at the active site are not at b, more than the {lag - 1} allowed" in refused.reason
    journal = tmp_path / "journal.jsonl"
    allowing = FailoverPolicy(lag_records_max=lag, settle_ms=200)
    done = await failover(LINK, to_site="b", agents=sites.agents, policy=allowing, journal_path=journal)
    assert done.is_done, done
    assert done.account is not None
    assert [(item.kept_below, item.known_lost_records) for item in done.account.partitions] == [(end, lag)]
    (policy,) = [line["policy"] for line in read_journal(journal) if "policy" in line]
    assert policy["lag_records_max"] == lag
    runs = [RunRecord.from_json(text) for text in await sites.client("b").runs(LINK)]
    assert [(run.outcome, run.policy["lag_records_max"]) for run in runs] == [("refused", lag - 1), ("done", lag)]
    assert all(run.who for run in runs)
