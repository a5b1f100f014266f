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
    assert topic_calls.offsets_before(cluster, "orders", "7", 1) == {1: 7}
