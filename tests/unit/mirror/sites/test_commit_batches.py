"""Commits of groups that come while a request is under way go into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.sites import commit_batches
from mirror.sites.commit_batches import CommitBatches
from tests.support.eventually import eventually
from wire.client.client_errors import Unreachable
from wire.client.requests.group_requests import CommittedOffset

AT = ("orders", 0)
OFFSETS = {AT: CommittedOffset(7)}


class Target:
    """Takes batches when it is released."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int, list[str]]] = []
        self.released = asyncio.Semaphore(0)
        self.failures: dict[str, Exception] = {}
        self.failure: Exception | None = None

    async def mirror_group_offsets(self, groups: Mapping[str, Any], *, link: str, link_epoch: int) -> dict[str, Any]:
        self.batches.append((link, link_epoch, sorted(groups)))
        await self.released.acquire()
        if self.failure is not None:
            raise self.failure
        return {name: self.failures.get(name, dict.fromkeys(groups[name], ErrorCode.none)) for name in groups}


def commits(batches: CommitBatches, *groups: str, link_epoch: int = 1) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(batches.commit(group, OFFSETS, link="a-b", link_epoch=link_epoch)) for group in groups]


async def begun(target: Target, count: int) -> None:
    async def is_begun() -> bool:
        return len(target.batches) == count

    await eventually(is_begun)


async def test_commits_that_come_meanwhile_go_into_the_next_request() -> None:
    target = Target()
    batches = CommitBatches(target)  # type: ignore[arg-type]
    first = commits(batches, "g0")
    await begun(target, 1)
    others = commits(batches, "g1", "g2", "g0", "g1")
    target.released.release()
    assert await first[0] == {AT: ErrorCode.none}
    await begun(target, 2)
    target.released.release()
    await begun(target, 3)
    target.released.release()
    assert [await one for one in others] == [{AT: ErrorCode.none}] * 4
    epoch = ("a-b", 1)
    assert target.batches == [(*epoch, ["g0"]), (*epoch, ["g0", "g1", "g2"]), (*epoch, ["g1"])]
    await batches.close()


async def test_another_epoch_of_the_link_and_a_full_batch_begin_a_new_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_batches, "GROUPS_MAX", 2)
    target = Target()
    batches = CommitBatches(target)  # type: ignore[arg-type]
    tasks = [*commits(batches, "g0", "g1", "g2"), *commits(batches, "g3", link_epoch=2)]
    for _ in range(3):
        target.released.release()
    await asyncio.gather(*tasks)
    assert target.batches == [("a-b", 1, ["g0", "g1"]), ("a-b", 1, ["g2"]), ("a-b", 2, ["g3"])]


async def test_each_group_has_its_own_error_and_a_failed_request_is_everyones() -> None:
    target = Target()
    batches = CommitBatches(target)  # type: ignore[arg-type]
    target.failures["g1"] = Unreachable("no coordinator", node="b")
    good, bad = commits(batches, "g0", "g1")
    target.released.release()
    assert await good == {AT: ErrorCode.none}
    with pytest.raises(Unreachable, match="no coordinator"):
        await bad
    target.failure = Unreachable("no broker", node="b")
    both = commits(batches, "g0", "g1")
    target.released.release()
    assert all(isinstance(one, Unreachable) for one in await asyncio.gather(*both, return_exceptions=True))
    target.failure = None
    (again,) = commits(batches, "g0")
    target.released.release()
    assert await again == {AT: ErrorCode.none}


async def test_a_cancelled_caller_is_left_out_and_closing_ends_those_who_wait() -> None:
    target = Target()
    batches = CommitBatches(target)  # type: ignore[arg-type]
    first = commits(batches, "g0")
    await begun(target, 1)
    cancelled, kept = commits(batches, "g1", "g2")
    await asyncio.sleep(0)
    cancelled.cancel()
    target.released.release()
    await first[0]
    await begun(target, 2)
    assert target.batches[-1][2] == ["g2"]
    late = commits(batches, "g3")
    await asyncio.sleep(0)
    await batches.close()
    ended = await asyncio.gather(kept, *late, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
