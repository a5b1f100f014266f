"""A mirror between two real brokers: what arrives is byte for byte what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.mirror_sites import describe_mirror, scrape, start_pair
from tests.support.processes import Processes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def test_the_target_becomes_a_byte_exact_copy(processes: Processes, tmp_path: Path) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders", 3)
    for partition in range(3):
        await pair.produce("orders", partition, 20)
    mirror = pair.start_mirror()
    await pair.caught_up("orders", 3)
    reply = await describe_mirror(mirror)
    assert {partition.state for partition in reply.partitions} == {"MIRRORING"}
    assert "antipode_mirror_lag_records" in scrape(mirror)
