"""The periodic work of a broker over its logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.partition_log import PartitionLog
from broker.replication import housekeeping
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS
from tests.support.eventually import eventually
from tests.unit.broker.settings.test_settings_in_effect import ID, keeping_house, opened
from wire.batches.leaf_digests import LEAF_OFFSETS
from wire.control.cluster_pb2 import LinkRecord


def fill_leaf(log: PartitionLog) -> None:
    records = batch([b"v"] * LEAF_OFFSETS, timestamp_ms=NOW_MS)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)


async def test_only_logs_that_a_link_carries_are_digested_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "DIGEST_INTERVAL_MS", 1)
    logs = opened(tmp_path)
    before, carried, behind = (
        logs.open_or_create(topic, 0, topic_id=ID, config=LogConfig()) for topic in ("before", "t", "behind")
    )
    for log in (before, carried, behind):
        fill_leaf(log)
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1, topic_whitelist=["t"])
    async with keeping_house(tmp_path, logs, links=[link]):
        await eventually(lambda: carried.digests.end_leaf == 1)
        # a second leaf: by then, a turn over all logs is complete
        fill_leaf(carried)
        await eventually(lambda: carried.digests.end_leaf == 2)
        assert (before.digests.end_leaf, behind.digests.end_leaf) == (0, 0)
