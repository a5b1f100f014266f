"""A client's way to the coordinator of one key, and plain commits of a group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tests.sim.clients import Router
from tests.sim.ledger import Ledger
from tests.sim.world import World
from wire.client.client_errors import KafkaClientError, error_code
from wire.client.requests.group_requests import OFFSET_COMMIT, OFFSET_FETCH, request_coordinator

UNANSWERED: Final = ErrorCode.network_exception
NO_OFFSET: Final = -1
_COMMIT_VERSION: Final = 8
_FETCH_VERSION: Final = 7
"""The newest that names topics and one group."""


class CoordinatorClient:
    """Requests to the coordinator of a group (key type 0) or a transactional id (1)."""

    def __init__(self, world: World, router: Router, nodes: tuple[int, ...], key: str, key_type: int) -> None:
        self._world = world
        self._router = router
        self._nodes = nodes
        self._key = key
        self._key_type = key_type
        self._node = -1

    async def ask(self, api_key: int, values: Mapping[str, Any], *, version: int) -> Any:
        """The response, None without one."""
        try:
            if self._node < 0:
                asked = await self._router.connection(self._world.chance.choice(self._nodes))
                self._node = await request_coordinator(asked, self._key, key_type=self._key_type)
            connection = await self._router.connection(self._node)
            return await connection.call(api_key, values, version=version)
        except KafkaClientError:
            self._node = -1
            return None

    def note(self, code: ErrorCode) -> None:
        """Look for the coordinator anew after an error that says so."""
        if code in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
            self._node = -1


def offset_topics(place: tuple[str, int], offset: int) -> list[dict[str, Any]]:
    """The topics of a commit of one partition's offset."""
    partition = {
        "partition_index": place[1],
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return [{"name": place[0], "partitions": [partition]}]


def code_of_commit(response: Any) -> ErrorCode:
    """The outcome of the request."""
    return UNANSWERED if response is None else error_code(response.topics[0].partitions[0].error_code)


async def fetch_offset(groups: CoordinatorClient, group: str, place: tuple[str, int]) -> tuple[ErrorCode, int]:
    """A group's stable committed offset."""
    values = {
        "group_id": group,
        "topics": [{"name": place[0], "partition_indexes": [place[1]]}],
        "require_stable": True,
    }
    response = await groups.ask(OFFSET_FETCH, values, version=_FETCH_VERSION)
    if response is None:
        return UNANSWERED, NO_OFFSET
    found = response.topics[0].partitions[0] if response.topics else response
    code = error_code(response.error_code) or error_code(found.error_code)
    groups.note(code)
    return code, NO_OFFSET if code else int(found.committed_offset)


@dataclass
class OffsetCommitter:
    """Commits growing offsets of a group without members, and reads the committed offset at the
    end.

    A commit without an answer may still arrive, at Kafka as well; so what it finds is the last one
    that was acknowledged or one of those. A former coordinator that has not noticed its loss
    returns an older offset, in Kafka as well; so the read is repeated until it returns an expected
    one.
    """

    world: World
    ledger: Ledger
    router: Router
    nodes: tuple[int, ...]
    group: str
    place: tuple[str, int]
    pace_s: float
    is_wanted: bool = True
    is_idle: bool = False
    acknowledged: int = NO_OFFSET
    unanswered: set[int] = field(default_factory=set)

    async def run(self) -> None:
        """Commit repeatedly, then read the committed offset."""
        chance = self.world.chance
        groups = CoordinatorClient(self.world, self.router, self.nodes, self.group, 0)
        offset = 0
        while self.is_wanted:
            await self.world.pause(chance.uniform(0, 2 * self.pace_s))
            offset += 1
            await self._commit(groups, offset)
        await self._look(groups)
        self.is_idle = True

    async def _commit(self, groups: CoordinatorClient, offset: int) -> None:
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": offset_topics(self.place, offset),
        }
        while not self.ledger.waived:
            code = code_of_commit(await groups.ask(OFFSET_COMMIT, values, version=_COMMIT_VERSION))
            groups.note(code)
            if code is ErrorCode.none:
                self.acknowledged = offset
                return
            self.unanswered.add(offset)
            self._judge(code, f"OffsetCommit of {offset}")
            await self._wait()

    async def _look(self, groups: CoordinatorClient) -> None:
        while not self.ledger.waived:
            code, found = await fetch_offset(groups, self.group, self.place)
            if code is ErrorCode.none and (found == self.acknowledged or found in self.unanswered):
                return
            self._judge(code, "OffsetFetch")
            await self._wait()

    def _judge(self, code: ErrorCode, request: str) -> None:
        if not (code.retriable or code is ErrorCode.none or self.ledger.waived):
            self.world.violate("clients-live", f"{request} of {self.group} is answered {code.name}")

    async def _wait(self) -> None:
        await self.world.pause(self.world.chance.uniform(0.01, 0.1))
        await self.router.refresh()
