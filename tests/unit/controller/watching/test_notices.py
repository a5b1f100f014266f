"""Notices of other tools are read and removed, however many there are, and also when another
process removes some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError

from controller.stored.multis import MULTI_BYTES_MAX
from controller.watching.notices import Notices, Reading
from runtime.zookeeper.nodes import TransactionStep


class Writer:
    """Notes the multis; a path in `gone` does not exist."""

    def __init__(self, *gone: str) -> None:
        self.multis: list[list[str]] = []
        self._gone = gone

    async def write(self, steps: Sequence[TransactionStep]) -> None:
        paths = [step.path for step in steps]
        if not set(paths).isdisjoint(self._gone):
            raise NoNodeError
        self.multis.append(paths)


async def taken(writer: Any, notices: list[str]) -> int:
    """Take notices of ACLs; returns the number of readings that follow."""
    told: list[Reading] = []

    async def tell(reading: Reading) -> None:
        told.append(reading)

    unused: Any = None
    await Notices(unused, unused, writer, tell, cluster=unused).take_acls(notices)
    return len(told)


async def test_more_notices_than_a_request_to_zookeeper_holds_are_removed_by_several() -> None:
    writer = Writer()
    notices = [f"/kafka-acl-changes/acl_changes_{number:010}" for number in range(10_000)]
    assert await taken(writer, notices) == 1
    assert [path for multi in writer.multis for path in multi] == notices
    assert max(sum(map(len, multi)) for multi in writer.multis) < MULTI_BYTES_MAX


async def test_a_notice_that_another_tool_removes_ends_no_tenure() -> None:
    assert await taken(Writer("b"), ["a", "b"]) == 1
