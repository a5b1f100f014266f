"""Follows the ACLs of the source's topics at the target of a translate link, where both clusters
have an authorizer.

`core/acls.py` decides about each ACL. A cluster without an authorizer, or one that refuses to
describe its ACLs, is asked again only every ten minutes: an operator must change that. The result
is in `status`, and logged each time it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from mirror.link.core.topic_naming import Naming
from mirror.topics.core.acls import changes, wanted_acls
from runtime.logs import get_logger
from wire.client.client_errors import BrokerError, KafkaClientError, UnsupportedApi
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls, delete_acls, describe_acls, exactly
from wire.rules.acls import Acl, AclFilter, ResourceType

REFUSED_INTERVAL_S = 600.0

_LASTING_REFUSALS = frozenset({ErrorCode.security_disabled, ErrorCode.cluster_authorization_failed})

_log = get_logger("mirror.acls")


class NotAllowed(Exception):
    """A cluster has no ACLs, or denies us access to them."""


class AclSync:
    """The task that mirrors the ACLs of topics to the target of a translate link."""

    def __init__(
        self,
        *,
        source: KafkaClient,
        target: KafkaClient,
        naming: Naming,
        carries: Callable[[str], bool],
        excluded_principals: Sequence[str],
        interval_ms: int,
    ) -> None:
        self._source = source
        self._target = target
        self._naming = naming
        self._carries = carries
        self._excluded_principals = excluded_principals
        self._interval_s = interval_ms / 1000
        self._wanted: frozenset[Acl] = frozenset()
        self.status = "ACLs have not been compared yet"

    async def run(self) -> None:
        """Look each interval until cancelled."""
        while True:
            pause_s = self._interval_s
            try:
                self._note_status(await self._round(), is_well=True)
            except NotAllowed as error:
                pause_s = REFUSED_INTERVAL_S
                self._note_status(f"ACLs are not mirrored: {error}", is_well=False)
            except KafkaClientError as error:
                self._note_status(f"ACLs cannot be compared: {error}", is_well=False)
            await asyncio.sleep(pause_s)

    async def _round(self) -> str:
        theirs = await _asked("source", self._source)
        wanted = wanted_acls(
            theirs, naming=self._naming, carries=self._carries, excluded_principals=self._excluded_principals
        )
        actual = await _asked("target", self._target)
        to_add, to_remove = changes(wanted, actual=actual, wanted_before=self._wanted)
        if to_add:
            await create_acls(self._target, to_add)
            _log.info("ACLs added at the target", acls=[str(acl) for acl in sorted(to_add)])
        if to_remove:
            await delete_acls(self._target, [exactly(acl) for acl in to_remove])
            _log.info("ACLs removed at the target", acls=[str(acl) for acl in sorted(to_remove)])
        self._wanted = wanted
        return f"{len(wanted)} ACLs of the source's topics are followed"

    def _note_status(self, status: str, *, is_well: bool) -> None:
        if status != self.status:
            (_log.info if is_well else _log.warning)(status)
        self.status = status


async def _asked(end: str, client: KafkaClient) -> set[Acl]:
    try:
        return await describe_acls(client, AclFilter(ResourceType.TOPIC))
    except UnsupportedApi as error:
        raise NotAllowed(f"the {end} has no ACLs") from error
    except BrokerError as error:
        if error.code is ErrorCode.security_disabled:
            raise NotAllowed(f"the {end} has no authorizer ({error.code.name})") from error
        if error.code in _LASTING_REFUSALS:
            raise NotAllowed(f"the {end} does not allow the mirror to list them ({error.code.name})") from error
        raise
