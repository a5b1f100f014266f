"""A repair of what is not there any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

from dr.repair import execution
from dr.repair.core.orders import Refused
from dr.repair.core.suspects import Suspect
from dr.repair.execution import RepairRequest, repair
from runtime.clock import SystemClock
from wire.control.cluster_pb2 import LinkRecord

RECORD = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", epoch=1)


class SiteWith:
    """A client of a site with these partitions; any other question fails."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def metadata(self) -> Any:
        topics = {name: SimpleNamespace(partitions=range(count)) for name, count in self._partitions.items()}
        return SimpleNamespace(topics=topics)


@pytest.mark.parametrize(("at_b", "key"), [({}, ("t", 0)), ({"t": 1}, ("t", 1))])
async def test_a_partition_that_a_site_does_not_have_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, at_b: dict[str, int], key: tuple[str, int]
) -> None:
    sites = {"a:1": SiteWith({"t": 2}), "b:1": SiteWith(at_b)}
    monkeypatch.setattr(execution, "new_client", sites.__getitem__)
    request = RepairRequest(
        record=RECORD, bootstraps={"a": "a:1", "b": "b:1"}, suspects=[Suspect(*key, 3, 5)], is_dry_run=True
    )
    report = await repair(request, SystemClock())
    reason = "site b does not have it: it may have been deleted since the comparison"
    assert report.refused == (Refused(topic=key[0], partition=key[1], first_offset=3, last_offset=5, reason=reason),)
