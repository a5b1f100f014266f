"""Logs of three replicas: a log directory that fails under load on one broker, and records deleted
on all of them.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, SETTLE_WITHIN_MS, ReplicatedSite

pytestmark = pytest.mark.integration

TOPIC = "orders"
PARTITIONS = 4


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(
        processes,
        tmp_path,
        zookeeper_connect,
        {**CALM, "replica.high.watermark.checkpoint.interval.ms": "200"},
        log_directories=("one", "two"),
    )


def offline_replicas(site: ReplicatedSite, asked: int) -> dict[int, list[int]]:
    """The offline replicas by partition, from a broker's Metadata."""
    with RawClient(site.nodes[asked].port) as client:
        response = client.call(
            3,
            8,
            {
                "topics": [{"name": TOPIC}],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            },
        )
    return {found.partition_index: list(found.offline_replicas) for found in response.topics[0].partitions}


def log_directories(site: ReplicatedSite, asked: int) -> dict[str, tuple[ErrorCode, list[int]]]:
    """Error and partitions by log directory of a broker."""
    with RawClient(site.nodes[asked].port) as client:
        response = client.call(35, 4, {"topics": None})
    return {
        Path(result.log_dir).name: (
            result.error_code,
            sorted(
                entry.partition_index for topic in result.topics if topic.name == TOPIC for entry in topic.partitions
            ),
        )
        for result in response.results
    }


def fail(directory: Path) -> None:
    # in one step, because the broker makes files in it meanwhile
    directory.rename(directory.with_name(f"{directory.name}-lost"))
    directory.write_text("not a directory any more")


async def test_partitions_of_a_lost_log_directory_are_led_elsewhere(site: ReplicatedSite, tmp_path: Path) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    victim = next(node for node in NODES if node != site.controller())
    lost = log_directories(site, victim)["two"][1]
    kept = [index for index in range(PARTITIONS) if index not in lost]
    assert lost
    assert kept
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(200)
        fail(tmp_path / f"node-{victim}" / "two")
        others = [node for node in NODES if node != victim]
        for asked in NODES:
            eventually_sync(
                lambda asked=asked: (
                    offline_replicas(site, asked)
                    == {index: [victim] if index in lost else [] for index in range(PARTITIONS)}
                ),
                SETTLE_WITHIN_MS,
            )
        eventually_sync(lambda: all(site.in_sync(TOPIC)[index] == set(others) for index in lost), SETTLE_WITHIN_MS)
        assert all(site.leaders(TOPIC)[index] in others for index in lost)
        assert log_directories(site, victim)["two"] == (ErrorCode.kafka_storage_error, [])
        assert log_directories(site, victim)["one"][1] == kept
        load.wait_acknowledged(200)
        eventually_sync(lambda: all(site.in_sync(TOPIC)[index] == set(NODES) for index in kept), SETTLE_WITHIN_MS)

        controller = site.nodes[site.controller()]
        controller.process.kill()
        load.wait_acknowledged(200)
        controller.restart()
        eventually_sync(lambda: site.in_sync(TOPIC)[lost[0]] == set(others), SETTLE_WITHIN_MS)
        eventually_sync(lambda: offline_replicas(site, others[0])[lost[0]] == [victim], SETTLE_WITHIN_MS)

        site.nodes[victim].process.kill()
        (tmp_path / f"node-{victim}" / "two").unlink()
        site.nodes[victim].restart()
        site.wait_in_sync(TOPIC)
        load.finish()
    await load.check_log(site.bootstrap)


def delete_records(site: ReplicatedSite, asked: int, offset: int, timeout_s: float) -> tuple[ErrorCode, int]:
    """The error and the low watermark."""
    wanted: dict[str, Any] = {"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}
    with RawClient(site.nodes[asked].port, timeout_s=timeout_s + 10) as client:
        timeout = i32Timedelta.parse(timedelta(seconds=timeout_s))
        response = client.call(21, 2, {"topics": [wanted], "timeout": timeout})
    (result,) = response.topics[0].partitions
    return result.error_code, int(result.low_watermark)


def test_deleted_records_are_gone_everywhere_when_the_answer_comes(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    with AcknowledgedLoad(site.bootstrap, TOPIC, 1) as load:
        load.wait_acknowledged(100)
        load.finish()
    leader = site.leaders(TOPIC)[0]
    assert delete_records(site, leader, 10, 30) == (ErrorCode.none, 10)
    paused = next(node for node in NODES if node not in (leader, site.controller()))
    site.nodes[paused].process.pause()
    assert delete_records(site, leader, 20, 0.2) == (ErrorCode.request_timed_out, 10)
    site.nodes[paused].process.resume()
    assert delete_records(site, leader, 20, 30) == (ErrorCode.none, 20)
    site.nodes[paused].process.pause()
    assert delete_records(site, leader, 30, 60) == (ErrorCode.none, 30), "its session has ended: it is not waited for"
    site.wait_in_sync(TOPIC, tuple(node for node in NODES if node != paused))
    follower = next(node for node in NODES if node not in (leader, paused))
    reported = site.nodes[follower].process.log_text().count(f"event=partitions topic={TOPIC} ")
    assert reported == 1, "other in-sync replicas are no other leadership"
