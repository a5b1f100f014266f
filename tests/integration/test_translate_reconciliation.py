"""`antipode reconcile` of a translate link between two sites, without Spark. Promised: it reports a
link that has mirrored everything as equal, also with transactions and with clients at the target.
It names records that are not mirrored by their offsets at the source, by the map and by content.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_jobs.reconciling import translated_run
from tests.support.embedded.commands import app
from tests.support.eventually import eventually
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    create_topic,
    produce_batches,
    read_partition,
    run_transactions,
    start_translate_mirror,
)
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient

pytestmark = pytest.mark.integration

TOPIC = "orders"
FIRST_TIME_MS = 1_700_000_000_000
"""The timestamp of batch 0 of `produce_batches`; that of batch n is n ms later."""


async def reconciled(source: str, target: str, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    sites = ["--source", source, "--target", target, "--settle-timeout-ms", "3000"]
    topics = [] if "--whitelist" in options else ["--whitelist", TOPIC]
    command = ["reconcile", *sites, *topics, *options, "--out", str(out), "--output", "json"]
    ended = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert ended.stdout, (ended.stderr, ended.exception)
    return ended.exit_code, json.loads(ended.stdout)


async def test_both_ends_of_a_translate_link_are_compared_record_by_record(
    processes: Processes, tmp_path: Path
) -> None:
    first = await start_lone_site(processes, tmp_path, "first")
    second = await start_lone_site(processes, tmp_path, "second")
    source, target = first.bootstrap, second.bootstrap
    await create_topic(source, TOPIC, 2)
    await produce_batches(source, TOPIC, 1, 0, 10)
    await asyncio.to_thread(run_transactions, source, TOPIC, 0)
    settings = {"whitelist": TOPIC, "topic.naming.policy": "identity"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)

    async def is_begun() -> bool:
        """True if the mirror has written first: a link refuses a partition that has only records of
        others.
        """
        async with KafkaClient(target) as client:
            if TOPIC not in (await client.metadata()).topics:
                return False
        return bool((await read_partition(target, TOPIC, 1)).records)

    await eventually(is_begun)
    await produce_batches(target, TOPIC, 1, 900, 2)
    await produce_batches(source, TOPIC, 1, 10, 10)

    async def reasons() -> set[str]:
        exit_code, report = await reconciled(source, target, tmp_path / "equal", "--translate-link", "a-b")
        assert (exit_code, report["verdict"], report["findings"]) == (0, "equal", []), report
        assert sum(one["source"]["records"] for one in report["partitions"]) > 100
        return {one["kind"] for one in report["explanations"]}

    assert await eventually(reasons) == {"marker", "uncommitted", "local"}

    mirror.kill()
    await produce_batches(source, TOPIC, 1, 20, 2)
    # --process-offsets does not bound these comparisons, which need no memory for whole logs.
    for options in (["--translate-link", "a-b", "--process-offsets", "10"], ["--by-content"]):
        for until, last in (([], 109), (["--until", str(FIRST_TIME_MS + 21)], 104)):
            exit_code, report = await reconciled(source, target, tmp_path / options[0], *options, *until)
            found = [one for one in report["findings"] if one["kind"] == "missing"]
            assert exit_code == 1
            places = [(one["partition"], one["first_offset"], one["last_offset"]) for one in found]
            assert places == [(1, 100, last)], report


async def test_records_that_are_mirrored_during_a_comparison_are_no_difference(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They arrive between the questions for the ends of the two logs."""
    first = await start_lone_site(processes, tmp_path, "first")
    second = await start_lone_site(processes, tmp_path, "second")
    source, target = first.bootstrap, second.bootstrap
    await create_topic(source, TOPIC, 1)
    await produce_batches(source, TOPIC, 0, 0, 10)
    settings = {"whitelist": TOPIC, "topic.naming.policy": "identity"}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    settled = translated_run._settled

    async def mirror_more() -> None:
        before = len((await read_partition(source, TOPIC, 0)).offsets)
        await produce_batches(source, TOPIC, 0, before // 5, 2)

        async def is_mirrored() -> bool:
            return len((await read_partition(target, TOPIC, 0)).offsets) == before + 10

        await eventually(is_mirrored)

    def settled_then_more(*given: Any, **options: Any) -> translated_run.LinkNotes:
        notes = settled(*given, **options)
        asyncio.run(mirror_more())
        return notes

    monkeypatch.setattr(translated_run, "_settled", settled_then_more)

    async def is_there() -> bool:
        async with KafkaClient(target) as client:
            return TOPIC in (await client.metadata()).topics

    await eventually(is_there)
    for options in (["--translate-link", "a-b"], ["--by-content"]):
        exit_code, report = await reconciled(source, target, tmp_path / options[0], *options)
        assert (exit_code, report["findings"]) == (0, []), report


async def test_both_ends_may_be_apache_kafka(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    topic = f"reconciled-{uuid.uuid4().hex[:8]}"
    await create_topic(source, topic, 1)
    await produce_batches(source, topic, 0, 0, 10)
    await asyncio.to_thread(run_transactions, source, topic, 0)
    settings = {"whitelist": topic, "link.name": topic}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)

    async def is_equal() -> bool:
        exit_code, report = await reconciled(
            source, target, tmp_path / "equal", "--translate-link", topic, "--whitelist", topic
        )
        assert (exit_code, report["verdict"], report["findings"]) == (0, "equal", []), report
        assert {one["kind"] for one in report["explanations"]} == {"marker", "uncommitted"}
        return True

    await eventually(is_equal)
    mirror.kill()
    before = len((await read_partition(source, topic, 0, is_committed=False)).offsets)
    await produce_batches(source, topic, 0, 20, 2)
    exit_code, report = await reconciled(
        source, target, tmp_path / "unequal", "--translate-link", topic, "--whitelist", topic
    )
    (found,) = report["findings"]
    assert (exit_code, found["kind"], found["last_offset"] - found["first_offset"]) == (1, "missing", 9)
    assert found["first_offset"] >= before
