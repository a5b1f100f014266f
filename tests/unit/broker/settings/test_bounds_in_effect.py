"""Bounds and windows of a broker under their names in its file, and their effect on its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.internal_log import InternalLog
from broker.metadata.core.topic_images import PartitionImage
from broker.metadata.request_context import RequestContext
from broker.metrics import TopicMetrics
from broker.quotas.client_throttling import QuotaClient, Quotas
from broker.replication.core.fetch_sessions import FetchPartitionState, FetchSessions
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import path_of
from broker.settings.core.topic_configs import LogConfig
from broker.settings.loading import load_broker_settings
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from tests.unit.broker.replication.test_truncated_records import follower
from tests.unit.broker.settings.test_settings_in_effect import GIVEN, broker_with
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.records import decode_records
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.rules.client_quotas import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, quota_entity

EVERY_CLIENT = quota_entity([("client-id", None)])


CLIENT = QuotaClient("ANONYMOUS", "c")


def quotas_with(clock: ManualClock, kind: str, bound: float, **properties: str) -> Quotas:
    """A broker's quotas with one bound for every client; properties with underscores for dots."""
    given = {key.replace("_", "."): value for key, value in properties.items()}
    quotas = Quotas(load_broker_settings({**GIVEN, "log.dirs": "/x", **given}), clock)
    for rates in (quotas.produce, quotas.mutations):
        rates.take({EVERY_CLIENT: {kind: bound}})
    quotas.is_in_use = True
    return quotas


async def test_a_clients_rate_is_taken_over_the_windows_of_the_file() -> None:
    clock = ManualClock()
    quotas = quotas_with(clock, PRODUCER_BYTE_RATE, 100, quota_window_num="3", quota_window_size_seconds="5")
    # two quiet windows of 5 s even out 1000 bytes; another 100 bytes are one second too many
    assert quotas.used_bytes(quotas.produce, CLIENT, 1000) == 0
    assert quotas.used_bytes(quotas.produce, CLIENT, 100) == pytest.approx(1000)
    clock.advance(14_999)
    assert quotas.used_bytes(quotas.produce, CLIENT, 1000) > 0
    clock.advance(15_000)
    assert quotas.used_bytes(quotas.produce, CLIENT, 1000) == 0


async def test_partitions_may_be_created_at_once_as_in_all_windows_of_the_file() -> None:
    windows = {"controller_quota_window_num": "4", "controller_quota_window_size_seconds": "3"}
    clock = ManualClock()
    quotas = quotas_with(clock, CONTROLLER_MUTATION_RATE, 2, **windows)
    asked = RequestContext(
        api_key=19, api_version=7, correlation_id=1, client_id="c", listener="CLIENT", client_address="127.0.0.1"
    )
    # 2 a second for 4 windows of 3 s; a request may overdraw, the next one is refused
    assert quotas.mutation_permits(asked).take(24)
    assert quotas.mutation_permits(asked).take(1)
    refused = quotas.mutation_permits(asked)
    assert not refused.take(1)
    assert refused.throttle_time_ms == pytest.approx(500)


async def test_replication_is_throttled_at_the_rates_and_over_the_windows_of_the_file(tmp_path: Path) -> None:
    broker = await broker_with(
        tmp_path,
        leader_replication_throttled_rate="1000",
        follower_replication_throttled_rate="2000",
        replication_quota_window_num="3",
        replication_quota_window_size_seconds="10",
    )
    leader, follower_ = broker.replication.replicas.leader_throttle, broker.replication.replicas.follower_throttle
    for throttle, rate in ((leader, 1000), (follower_, 2000)):
        throttle.record(0, rate * 20)
        assert not throttle.is_exceeded(0)
        throttle.record(0, 1)
        assert throttle.is_exceeded(0)
        assert throttle.rate_per_second(29_999) > 0
        assert throttle.rate_per_second(30_000) == 0


@pytest.mark.parametrize("slots", [0, 2])
async def test_as_many_fetch_sessions_are_kept_as_the_file_has_slots(tmp_path: Path, slots: int) -> None:
    chosen = {
        0: {"max_incremental_fetch_session_cache_slots": "0"},
        2: {"max_incremental_fetch_session_cache_slots": "2"},
    }
    broker = await broker_with(tmp_path, **chosen[slots])
    sessions: FetchSessions = broker.serving.fetch_sessions
    wanted = [FetchPartitionState(topic="t", partition=0, fetch_offset=0, partition_max_bytes=100)]
    plans = [
        sessions.open(session_id=0, session_epoch=0, has_topic_ids=False, wanted=wanted, forgotten=(), now_ms=0)
        for _ in range(3)
    ]
    assert [plan.session is not None for plan in plans] == [number < slots for number in range(3)]


def whole_batches(path: Path) -> int:
    """Batches of one record each in a file; 0 for none."""
    return len(list(decode_records(path.read_bytes()))) if path.exists() else 0


async def test_of_truncated_records_so_many_bytes_are_kept_as_the_file_allows(tmp_path: Path) -> None:
    kept: dict[str, int] = {}
    for name, bound in (
        ("none", {"antipode_truncated_records_max_bytes": "0"}),
        ("one", {"antipode_truncated_records_max_bytes": "100"}),
    ):
        broker = await broker_with(tmp_path / name, **bound)
        hosted = follower(tmp_path / name, b"a", b"b", b"c")
        size_bytes = hosted.log.size_bytes // 3
        assert size_bytes <= 100 < 2 * size_bytes
        await broker.replication.replicas.cuts.keep(hosted.log, 0)
        kept[name] = whole_batches(Path(path_of(hosted.log)))
    assert kept == {"none": 0, "one": 1}


class ShortWaits:
    """Replicas with another way to wait: the compiled purgatory has none."""

    def __init__(self, replicas: Replicas, wait: Callable[..., Any]) -> None:
        self._replicas = replicas
        self.purgatory = SimpleNamespace(wait=wait, forget=replicas.purgatory.forget)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
async def test_coordinators_wait_for_their_records_to_be_replicated_as_long_as_the_file_says(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await broker_with(tmp_path, offsets_commit_timeout_ms="1234")
    replicas = broker.replication.replicas
    log = open_log(tmp_path / f"{topic}-0")
    state = Partition(node_id=1, log_end_offset=0)
    # the other replica in sync never fetches
    state.change(
        PartitionImage(index=0, leader=1, leader_epoch=1, partition_epoch=0, replicas=(1, 2), isr=(1, 2)), now_ms=0
    )
    hosted = replicas.hosted[topic, 0] = HostedPartition(
        topic=topic, topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )
    hosted.write_error = ErrorCode.none
    allowed_ms: list[float] = []
    wait = replicas.purgatory.wait

    def shortened(waiter: Any, operation: Any, *, keys: Any, timeout_ms: float) -> Any:
        allowed_ms.append(timeout_ms)
        return wait(waiter, operation, keys=keys, timeout_ms=1)

    coordinator: Any = broker.coordination.groups if topic == OFFSETS_TOPIC else broker.coordination.transactions
    internal: InternalLog = coordinator._log
    monkeypatch.setattr(internal, "_replicas", ShortWaits(replicas, shortened))
    committed = internal.append(0, batch([b"v"], timestamp_ms=NOW_MS))
    assert committed is not None
    with pytest.raises(PartitionFailure) as failure:
        await committed
    assert (failure.value.code, allowed_ms) == (ErrorCode.request_timed_out, [1234])
