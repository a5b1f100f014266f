"""What other tools write to ZooKeeper and announce by a notice or a mark: configs, ACLs, tokens,
deletions.

The content is read in the controller's turn, between two commands (`Reading`). A command with
content that was read before would undo changes that the controller made after the read: it would
bring back credentials that were removed, or delete a topic that was created again.

Caller: `event_loop.py`, for the time of a tenure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from kazoo.exceptions import NoNodeError
from msgspec import Struct

from controller.core.commands import Command, DeletionsMarked, TopicConfigsRead
from controller.core.entity_commands import (
    AclsRead,
    ClientQuotasRead,
    DelegationTokensRead,
    GroupConfigsRead,
    ScramUsersRead,
)
from controller.core.state.cluster import Cluster
from controller.stored.acl_store import read_acls
from controller.stored.cluster_reader import ClusterReader
from controller.stored.cluster_writer import ClusterWriter
from controller.stored.multis import split_steps
from controller.stored.token_store import read_tokens
from controller.watching.watches import until_answered
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import DeleteNode
from wire.znodes.documents import MalformedZnode

_log = get_logger(__name__)


class Reading(Struct, frozen=True):
    """A command that is made from ZooKeeper's content when its turn comes; None: there is nothing
    to decide.
    """

    read: Callable[[], Awaitable[Command | None]]

    async def command(self) -> Command | None:
        """Read until ZooKeeper answers."""
        return await until_answered(self.read)


Tell = Callable[[Reading], Awaitable[None]]


def reading_marks(reader: ClusterReader) -> Reading:
    """The marks of deletions as they are when the controller decides about them."""

    async def read() -> Command:
        return DeletionsMarked(topics=tuple(await reader.deletion_marks()))

    return Reading(read)


class Notices:
    """Takes the notices and marks of one tenure."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        reader: ClusterReader,
        writer: ClusterWriter,
        tell: Tell,
        *,
        cluster: Callable[[], Cluster],
    ) -> None:
        self._zookeeper = zookeeper
        self._reader = reader
        self._writer = writer
        self._tell = tell
        self._cluster = cluster

    async def take_marks(self, names: list[str]) -> None:
        """Decide about marked topics whose deletion this controller has not begun."""
        if any(not self._cluster().is_deleting(name) for name in names):
            await self._tell(reading_marks(self._reader))

    async def take_configs(self, notices: dict[str, str]) -> None:
        """Apply the configs that the notices name, then remove the notices, which no other process
        of Antipode reads.
        """
        for topic in {entity.removeprefix("topics/") for entity in notices.values() if entity.startswith("topics/")}:
            await self._tell(Reading(partial(self._topic_configs, topic)))
        if any(entity.startswith(("users/", "clients/", "ips/")) for entity in notices.values()):
            await self._tell(Reading(self._quotas))
        if any(entity.startswith("users/") for entity in notices.values()):
            await self._tell(Reading(self._scram_users))
        if any(entity.startswith("groups/") for entity in notices.values()):
            await self._tell(Reading(self._group_configs))
        await self._remove(notices)

    async def take_acls(self, notices: list[str]) -> None:
        """Read all ACLs again, then remove the notices."""
        if notices:
            await self._tell(Reading(self._acls))
            await self._remove(notices)

    async def take_tokens(self, notices: list[str]) -> None:
        """Read all tokens again, then remove the notices."""
        if notices:
            await self._tell(Reading(self._tokens))
            await self._remove(notices)

    async def _remove(self, notices: list[str] | dict[str, str]) -> None:
        try:
            for steps in split_steps([DeleteNode(path=path)] for path in notices):
                await self._writer.write(steps)
        except NoNodeError:
            # another process removed one: the watch delivers those that are left
            _log.info("a notice in ZooKeeper was removed during its execution")

    async def _topic_configs(self, topic: str) -> Command | None:
        try:
            configs = await self._reader.topic_configs(topic)
        except MalformedZnode as error:
            _log.error("malformed topic configs in ZooKeeper are not applied", problem=str(error))
            return None
        return TopicConfigsRead(topic=topic, configs=configs or {})

    async def _quotas(self) -> Command:
        return ClientQuotasRead(quotas=await self._reader.quotas())

    async def _scram_users(self) -> Command:
        return ScramUsersRead(users=await self._reader.scram_users())

    async def _group_configs(self) -> Command:
        return GroupConfigsRead(configs=await self._reader.group_configs())

    async def _acls(self) -> Command:
        return AclsRead(acls=await read_acls(self._zookeeper))

    async def _tokens(self) -> Command:
        return DelegationTokensRead(tokens=await read_tokens(self._zookeeper))
