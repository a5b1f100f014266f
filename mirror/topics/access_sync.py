"""Keeps the ACLs, SCRAM users and client quotas of an exact link's target like those of its source,
so that after a failover the same principals may log in and do the same things.

All rules are mirrored, for every resource, because one missing ACL can lock an application out.
Rules that only the target has stay, unless this daemon has seen them at the source before: the
mirror does not own ACLs that were made only for the target. Both ends need an authorizer for ACLs;
an end without one, or one that refuses, is reported in `problems`, which `antipode links check`
shows. After a change of the link's direction nothing is written.

Each round leaves digests of what it has read at the source and carried. The mirror reports them,
and a planned move compares them with the fenced source's (`wire/rules/access_digests.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView
from mirror.topics.core.acls import changes
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.client_errors import BrokerError, KafkaClientError, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import create_acls, delete_acls, describe_acls, exactly
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.rules.access_digests import ACLS, QUOTAS, USERS, acls_digest, quotas_digest, users_digest
from wire.rules.acls import Acl, AclFilter
from wire.rules.client_quotas import Quota, QuotaEntity, quota_entity
from wire.rules.principals import USER
from wire.rules.sync_reports import CarriedAccess

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
DRAINING_INTERVAL_MS: Final = 100
"""The interval while the source is fenced: a planned move waits for the last changes."""
ROLE_CHECK_MS: Final = 50
"""How often a pause between rounds looks whether the link's role has changed."""

_log = get_logger("mirror.access")


class AccessSync:
    """The task that carries ACLs and quotas."""

    def __init__(
        self,
        *,
        source: KafkaClient,
        target: KafkaClient,
        link: Callable[[], LinkView],
        clock: Clock,
        interval_ms: int,
        excluded_principals: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._target = target
        self._link = link
        self._clock = clock
        self._interval_ms = interval_ms
        self._excluded_principals = excluded_principals
        self._acls_before: frozenset[Acl] = frozenset()
        self._quotas_before: frozenset[Quota] = frozenset()
        self._users_before: frozenset[tuple[str, str]] = frozenset()
        # The digests of the source's rules, by part, as they were last carried whole.
        self._digests: dict[str, str] = {}
        self._whole_round_ms: float | None = None
        self.problems: dict[str, str] = {}

    @property
    def carried(self) -> CarriedAccess:
        """The digests of the rules that are at the target, and the age of the round that carried
        all.
        """
        began_ms = self._whole_round_ms
        ago_ms = None if began_ms is None else round(self._clock.monotonic_ms() - began_ms)
        return CarriedAccess(dict(self._digests), ago_ms)

    async def run(self) -> None:
        """Compare each interval until cancelled."""
        while True:
            await self.round()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next round, which a change of the link's role brings forward: a move waits
        until what operators changed before the fence is at the target.
        """
        role, left_ms = self._link().role, self._interval_ms
        if role is LinkRole.DRAINING:
            left_ms = min(left_ms, DRAINING_INTERVAL_MS)
        while left_ms > 0 and self._link().role is role:
            wait_ms = min(left_ms, ROLE_CHECK_MS)
            await asyncio.sleep(wait_ms / 1000)
            left_ms -= wait_ms

    async def round(self) -> None:
        """Compare once and carry what differs; failures are in `problems`."""
        if self._link().role in (LinkRole.TURNED, LinkRole.GONE):
            self._acls_before, self._quotas_before, self._users_before = frozenset(), frozenset(), frozenset()
            self.problems, self._digests, self._whole_round_ms = {}, {}, None
            return
        problems: dict[str, str] = {}
        began_ms = self._clock.monotonic_ms()
        for part, carry in (
            (ACLS, self._carry_acls),
            (USERS, self._carry_users),
            (QUOTAS, self._carry_quotas),
        ):
            digest = None
            try:
                digest = await carry()
            except KafkaClientError as error:
                problems[f"({part})"] = f"not mirrored to the standby: {error}"
            # A part whose round has failed may be at the target in part: it counts as not carried.
            self._digests.pop(part, None)
            if digest is not None:
                self._digests[part] = digest
        if not problems:
            self._whole_round_ms = began_ms
        for name in problems.keys() - self.problems.keys():
            _log.warning("some access rules are not mirrored", part=name, reason=problems[name])
        self.problems = problems

    async def _carry_acls(self) -> str | None:
        """Returns the digest of the source's ACLs, None if neither site has an authorizer."""
        theirs = await _acls(self._source)
        actual = await _acls(self._target)
        if theirs is None and actual is None:
            return None
        if theirs is None or actual is None:
            end = "source" if theirs is None else "standby"
            raise KafkaClientError(f"the {end} has no authorizer, the other site has one")
        wanted = frozenset(acl for acl in theirs if not self._is_excluded(acl.entry.principal))
        to_add, to_remove = changes(wanted, actual=actual, wanted_before=self._acls_before)
        if to_add:
            await create_acls(self._target, to_add)
        if to_remove:
            await delete_acls(self._target, [exactly(acl) for acl in to_remove])
        _note("ACLs", to_add, to_remove)
        self._acls_before = wanted
        return acls_digest(theirs)

    def _is_excluded(self, principal: str) -> bool:
        return any(re.fullmatch(pattern, principal) for pattern in self._excluded_principals)

    async def _carry_users(self) -> str | None:
        """Returns the digest of the source's users, None if a site has no authorizer."""
        theirs, actual = await self._users(self._source), await self._users(self._target)
        if theirs is None or actual is None:
            return None  # A broker without an authorizer refuses to describe its users.
        wanted = {key: value for key, value in theirs.items() if not self._is_excluded(f"{USER}:{key[0]}")}
        to_set = {key: value for key, value in wanted.items() if actual.get(key) != value}
        to_remove = (self._users_before - wanted.keys()) & actual.keys()
        written = {**to_set, **dict.fromkeys(to_remove)}
        if written:
            await self._ask_users(self._target, written)
        _note("SCRAM users", to_set, to_remove)
        self._users_before = frozenset(wanted)
        return users_digest((name, mechanism, credential) for (name, mechanism), credential in theirs.items())

    async def _users(self, client: KafkaClient) -> dict[tuple[str, str], str] | None:
        """Credentials by user and mechanism; None without an authorizer."""
        try:
            answer = await self._ask_users(client, {})
        except BrokerError as error:
            if error.code is ErrorCode.security_disabled:
                return None
            raise
        return {(user.name, user.mechanism): user.credential for user in answer.users}

    async def _ask_users(self, client: KafkaClient, users: Mapping[tuple[str, str], str | None]) -> Any:
        connection, record = await _controller(client), self._link()
        entries = [
            {"name": name, "mechanism": mechanism, "credential": credential}
            for (name, mechanism), credential in sorted(users.items())
        ]
        values = {"link": record.name, "link_epoch": record.epoch, "users": entries}
        answer = await connection.call(SCRAM_USERS, values)
        _check(answer, connection, SCRAM_USERS)
        return answer

    async def _carry_quotas(self) -> str:
        """Returns the digest of the source's quotas."""
        wanted, actual = await _quotas(self._source), await _quotas(self._target)
        to_set = wanted - actual
        named = {(entity, key) for entity, key, _ in wanted}
        gone = {(entity, key) for entity, key, _ in self._quotas_before} - named
        to_remove = {quota for quota in actual if quota[:2] in gone}
        by_entity: dict[QuotaEntity, list[Mapping[str, Any]]] = {}
        for entity, key, value in sorted(to_set, key=str):
            by_entity.setdefault(entity, []).append({"key": key, "value": value, "remove": False})
        for entity, key, _ in sorted(to_remove, key=str):
            by_entity.setdefault(entity, []).append({"key": key, "value": 0.0, "remove": True})
        if by_entity:
            await _alter_quotas(self._target, by_entity)
        _note("quotas", to_set, to_remove)
        self._quotas_before = wanted
        return quotas_digest(wanted)


def _note(what: str, added: Collection[object], removed: Collection[object]) -> None:
    if added or removed:
        _log.info(f"{what} are carried", added=sorted(map(str, added)), removed=sorted(map(str, removed)))


async def _acls(client: KafkaClient) -> set[Acl] | None:
    """Return all ACLs; None if the cluster has no authorizer."""
    try:
        return await describe_acls(client, AclFilter())
    except BrokerError as error:
        if error.code is ErrorCode.security_disabled:
            return None
        raise


async def _quotas(client: KafkaClient) -> frozenset[Quota]:
    connection = await _controller(client)
    answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False})
    _check(answer, connection, DESCRIBE_CLIENT_QUOTAS)
    return frozenset(
        (quota_entity((part.entity_type, part.entity_name) for part in entry.entity), value.key, value.value)
        for entry in answer.entries or ()
        for value in entry.values
    )


async def _alter_quotas(client: KafkaClient, by_entity: Mapping[QuotaEntity, Sequence[Mapping[str, Any]]]) -> None:
    connection = await _controller(client)
    entries = [
        {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity], "ops": ops}
        for entity, ops in by_entity.items()
    ]
    answer = await connection.call(ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
    for entry in answer.entries:
        _check(entry, connection, ALTER_CLIENT_QUOTAS)


def _check(outcome: Any, connection: Any, api_key: int) -> None:
    code = error_code(outcome.error_code)
    if code is not ErrorCode.none:
        raise broker_error(code, message=outcome.error_message, node=str(connection.address), api_key=api_key)


async def _controller(client: KafkaClient) -> Any:
    metadata = await client.metadata([])
    return await client.connection(metadata.controller_id)
