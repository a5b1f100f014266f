"""Copies with a history that the source does not have: a mirror names the reason and overwrites
nothing until a person resets the copy, and keeps its records in quarantine.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.disks.log_batches import batch
from tests.support.pairs.mirror_calls import reset_topics, wait_for_state
from tests.support.pairs.mirror_sites import raw_log, start_pair
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes
from wire.client.raw_client import KafkaClient
from wire.control.cluster_pb2 import LinkPhase

pytestmark = pytest.mark.integration


async def test_a_fenced_source_is_drained_and_a_promoted_target_is_left_alone(
    processes: Processes, tmp_path: Path
) -> None:
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 2)
    mirror = pair.start_mirror()
    await pair.caught_up("orders")
    await pair.produce("orders", 0, 1)
    await pair.turn(epoch=1, active="a", phase=LinkPhase.FENCED)
    await pair.caught_up("orders")
    await pair.turn(epoch=2, active="b")
    await wait_for_state(mirror, "PROMOTED", "site b is active at link epoch 2")
    async with KafkaClient(pair.target.bootstrap) as client:
        await client.produce("orders", 0, batch([b"written at b"]))
    before = await raw_log(pair.target, "orders", 0, 0, 31)
    # The link turns back without b's extra record ever having been at a: named, never overwritten.
    await pair.turn(epoch=3, active="a")
    await wait_for_state(mirror, "FAULTED", "30")
    assert await raw_log(pair.target, "orders", 0, 0, 31) == before
    # F12: the copy is made anew when a person asks for it, under the id that it had.
    (reset,) = (await reset_topics(mirror, "orders")).topics
    (log,) = reset.partitions
    assert (reset.outcome, log.kept_from_offset, log.log_end_offset) == ("put away", 30, 31)
    await pair.produce("orders", 0, 1)
    await pair.caught_up("orders")
    await wait_for_state(mirror, "MIRRORING")
    await asyncio.to_thread(find_in_quarantine, pair.target.bootstrap, tmp_path / "exported.log", before)


def quarantine(bootstrap: str, command: str, *arguments: str, code: int = 0) -> str:
    """The output of `antipode quarantine COMMAND`."""
    done = run_antipode("quarantine", command, *arguments, "--bootstrap-server", bootstrap)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def find_in_quarantine(bootstrap: str, file: Path, log: bytes) -> None:
    """The records that only b had in orders-0 are listed, shown and exported unchanged, and are
    deleted on request.
    """
    (entry,) = json.loads(quarantine(bootstrap, "list", "--topic", "orders", "--output", "json"))
    assert (entry["kind"], entry["topic"], entry["partition"]) == ("reset", "orders", 0)
    assert (entry["first_offset"], entry["end_offset"], entry["link"], entry["origin_site"]) == (30, 31, "a-b", "b")
    assert "30" in entry["reason"]
    name = entry["name"]
    assert name in quarantine(bootstrap, "list")
    assert quarantine(bootstrap, "show", name) == "written at b\n"
    quarantine(bootstrap, "export", name, "--to", str(file))
    exported = file.read_bytes()
    assert len(exported) == entry["size_bytes"]
    assert log.endswith(exported), "the batches are as they were in the log"
    assert "File exists" in quarantine(bootstrap, "export", name, "--to", str(file), code=1)
    assert "would be deleted" in quarantine(bootstrap, "delete", name, "--dry-run")
    quarantine(bootstrap, "delete", name, "--yes")
    assert json.loads(quarantine(bootstrap, "list", "--output", "json")) == []
    assert "nothing is kept under the name" in quarantine(bootstrap, "show", name, code=1)


async def test_a_recreated_topic_is_a_reset_naming_both_ids(processes: Processes, tmp_path: Path) -> None:
    """M9."""
    pair = await start_pair(processes, tmp_path)
    await pair.create("orders")
    await pair.produce("orders", 0, 3)
    mirror = pair.start_mirror()
    await pair.caught_up("orders")
    before = await raw_log(pair.target, "orders", 0, 0, 30)
    async with KafkaClient(pair.source.bootstrap) as client:
        await client.delete_topics(["orders"])
        await pair.create("orders")
        await pair.produce("orders", 0, 5)
        new_id = (await client.metadata(["orders"])).topics["orders"].topic_id
    reason = await wait_for_state(mirror, "RESET", str(new_id))
    assert "antipode links reset" in reason
    assert await raw_log(pair.target, "orders", 0, 0, 30) == before
