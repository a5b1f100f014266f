"""Offsets of topics with many partitions."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cli.shared import topic_calls
from cli.shared.kafka_admin import Cluster


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
