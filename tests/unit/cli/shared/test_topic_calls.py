"""Offsets of topics with many partitions."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cli.shared import topic_calls
from cli.shared.kafka_admin import Cluster
from runtime.process import OperationalFailure


def test_offsets_of_many_partitions_are_asked_for_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_calls, "OFFSETS_A_REQUEST", 4)
    asked: list[int] = []

    def list_offsets(specs: dict[Any, Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        assert request_timeout == topic_calls.OFFSETS_TIMEOUT_S
        asked.append(len(specs))
        found = {place: Future[Any]() for place in specs}
        for place, future in found.items():
            future.set_result(SimpleNamespace(offset=place.partition * 10))
        return found

    cluster = Cluster(SimpleNamespace(list_offsets=list_offsets), {})
    found = topic_calls.offsets_at(cluster, "t", "latest", partitions=range(10))
    assert found == {index: index * 10 for index in range(10)}
    assert asked == [4, 4, 2]
    assert topic_calls.offsets_at(cluster, "t", "latest", partitions=()) == {}


def test_records_of_a_partition_that_is_not_there_are_not_called_deleted() -> None:
    topic = SimpleNamespace(error=None, partitions={0: object(), 1: object()})
    cluster = Cluster(SimpleNamespace(), {"orders": topic})
    for before in ("7", "2026-01-31T12:00:00Z"):
        with pytest.raises(OperationalFailure, match="topic orders has no partition 77"):
            topic_calls.offsets_before(cluster, "orders", before, 77)


def answered(value: Any) -> Future[Any]:
    """An answer that is there."""
    future = Future[Any]()
    future.set_result(value)
    return future


def test_an_offset_after_the_end_of_the_log_is_refused_by_a_dry_run_too() -> None:
    def list_offsets(specs: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {place: answered(SimpleNamespace(offset=7)) for place in specs}

    topic = SimpleNamespace(error=None, partitions={0: object(), 1: object()})
    cluster = Cluster(SimpleNamespace(list_offsets=list_offsets), {"orders": topic})
    assert topic_calls.offsets_before(cluster, "orders", "7", 1) == {1: 7}
    with pytest.raises(OperationalFailure, match=r"orders-1 .* before offset 8: accepted are offsets up to 7"):
        topic_calls.offsets_before(cluster, "orders", "8", 1)


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_config_that_is_not_there_is_not_called_removed(is_dry_run: bool) -> None:
    def describe_configs(resources: list[Any]) -> dict[Any, Future[Any]]:
        return {one: answered({"retention.ms": SimpleNamespace(value="1", source=5)}) for one in resources}

    asked: list[Any] = []

    def alter(resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        asked.extend(resources)
        return {one: answered(None) for one in resources}

    cluster = Cluster(SimpleNamespace(describe_configs=describe_configs, incremental_alter_configs=alter), {})
    topic_calls.alter_configs(cluster, "orders", {}, ["retention.ms"], is_dry_run=is_dry_run)
    assert len(asked) == 1
    with pytest.raises(OperationalFailure, match=r"--unset 'retension.ms' is not the key of a config; accepted are"):
        topic_calls.alter_configs(cluster, "orders", {}, ["retension.ms"], is_dry_run=is_dry_run)
    assert len(asked) == 1
