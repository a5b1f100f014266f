"""The four parts of a site's access rules (ACLs, SCRAM users, client quotas, delegation tokens),
each read and written in one form: a value for each identity. `access_sync.py` compares them at both
sites.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from wire.client.client_errors import BrokerError, KafkaClientError, UnsupportedApi
from wire.client.raw_client import KafkaClient
from wire.client.requests.acl_requests import describe_acls
from wire.client.requests.answer_checks import check_outcome, controller_connection
from wire.client.requests.standby_rule_requests import Claim, write_acls, write_quotas
from wire.protocol.ids import UNKNOWN
from wire.protocol.messages.delegation_token_messages import DELEGATION_TOKENS
from wire.protocol.messages.scram_user_messages import SCRAM_USERS
from wire.rules.access_digests import (
    ACLS,
    QUOTAS,
    TOKENS,
    USERS,
    acls_digest,
    quotas_digest,
    tokens_digest,
    users_digest,
)
from wire.rules.acls import Acl, AclFilter
from wire.rules.client_quotas import QuotaEntity, quota_entity
from wire.rules.principals import USER

DESCRIBE_CLIENT_QUOTAS: Final = 48

Identity = TypeVar("Identity")
Value = TypeVar("Value")
UserMechanism = tuple[str, str]
QuotaName = tuple[QuotaEntity, str]
TokenName = tuple[str, str]
"""The id of a delegation token, and its owner."""
Rules = Mapping[Identity, Value]


class RulesOfBoth(NamedTuple, Generic[Identity, Value]):
    """The rules of the link's two sites."""

    source: Rules[Identity, Value]
    target: Rules[Identity, Value]


class AccessPart(Protocol, Generic[Identity, Value]):
    """One part. Every method raises KafkaClientError."""

    name: str
    """One of the parts in `wire/rules/access_digests.py`."""

    async def read(self, source: KafkaClient, target: KafkaClient) -> RulesOfBoth[Identity, Value] | None:
        """All rules of both sites; None if there is nothing to carry because of the sites'
        settings. KafkaClientError if only one site has an authorizer: without one a site shows no
        rules.
        """
        ...

    async def write(
        self, client: KafkaClient, claim: Claim, to_set: Mapping[Identity, Value], to_remove: Collection[Identity]
    ) -> None:
        """Set and remove rules at the standby; KafkaClientError if the site is not the link's
        standby at the epoch of the claim.
        """
        ...

    def principal(self, identity: Identity) -> str:
        """The principal to which the rule applies; empty if rules of this part are not excluded by
        principals.
        """
        ...

    def digest(self, rules: Mapping[Identity, Value]) -> str:
        """The digest of a site's rules."""
        ...


class AclsPart:
    """The ACLs. An ACL has no value."""

    name = ACLS

    async def read(self, source: KafkaClient, target: KafkaClient) -> RulesOfBoth[Acl, None] | None:
        """All ACLs."""
        return await _where_authorizers_are(self._read, source, target)

    async def _read(self, client: KafkaClient) -> Mapping[Acl, None] | None:
        try:
            return dict.fromkeys(await describe_acls(client, AclFilter()))
        except BrokerError as error:
            _check_authorizer_is_missing(error)
            return None

    async def write(
        self, client: KafkaClient, claim: Claim, to_set: Mapping[Acl, None], to_remove: Collection[Acl]
    ) -> None:
        """Create and delete ACLs."""
        await write_acls(client, claim, to_set=to_set, to_remove=to_remove)

    def principal(self, identity: Acl) -> str:
        """The principal of the ACL."""
        return identity.entry.principal

    def digest(self, rules: Mapping[Acl, None]) -> str:
        """The digest of ACLs."""
        return acls_digest(rules)


class UsersPart:
    """The SCRAM users: the stored credential of each user and mechanism."""

    name = USERS

    def __init__(self, link: str) -> None:
        self._reads = Claim(link, UNKNOWN)

    async def read(self, source: KafkaClient, target: KafkaClient) -> RulesOfBoth[UserMechanism, str] | None:
        """All credentials."""
        return await _where_authorizers_are(self._read, source, target)

    async def _read(self, client: KafkaClient) -> Mapping[UserMechanism, str] | None:
        try:
            answer = await self._ask(client, self._reads, ())
        except BrokerError as error:
            _check_authorizer_is_missing(error)
            return None
        return {(user.name, user.mechanism): user.credential for user in answer.users}

    async def write(
        self,
        client: KafkaClient,
        claim: Claim,
        to_set: Mapping[UserMechanism, str],
        to_remove: Collection[UserMechanism],
    ) -> None:
        """Set and remove credentials."""
        written: dict[UserMechanism, str | None] = {**to_set, **dict.fromkeys(to_remove)}
        entries = (
            {"name": name, "mechanism": mechanism, "credential": credential}
            for (name, mechanism), credential in sorted(written.items())
        )
        await self._ask(client, claim, tuple(entries))

    def principal(self, identity: UserMechanism) -> str:
        """The principal as which the user logs in."""
        return f"{USER}:{identity[0]}"

    def digest(self, rules: Mapping[UserMechanism, str]) -> str:
        """The digest of users."""
        return users_digest((name, mechanism, credential) for (name, mechanism), credential in rules.items())

    async def _ask(self, client: KafkaClient, claim: Claim, users: tuple[Mapping[str, Any], ...]) -> Any:
        connection = await controller_connection(client)
        answer = await connection.call(SCRAM_USERS, {"link": claim.link, "link_epoch": claim.epoch, "users": users})
        check_outcome(answer, connection, SCRAM_USERS)
        return answer


class QuotasPart:
    """The client quotas: a number for each entity and quota name. They need no authorizer."""

    name = QUOTAS

    async def read(self, source: KafkaClient, target: KafkaClient) -> RulesOfBoth[QuotaName, float]:
        """All quotas."""
        return RulesOfBoth(await self._read(source), await self._read(target))

    async def _read(self, client: KafkaClient) -> Mapping[QuotaName, float]:
        connection = await controller_connection(client)
        answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False})
        check_outcome(answer, connection, DESCRIBE_CLIENT_QUOTAS)
        return {
            (quota_entity((part.entity_type, part.entity_name) for part in entry.entity), value.key): value.value
            for entry in answer.entries or ()
            for value in entry.values
        }

    async def write(
        self, client: KafkaClient, claim: Claim, to_set: Mapping[QuotaName, float], to_remove: Collection[QuotaName]
    ) -> None:
        """Set and remove quotas."""
        await write_quotas(client, claim, to_set=to_set, to_remove=to_remove)

    def principal(self, identity: QuotaName) -> str:  # noqa: ARG002
        """Nothing: a quota is carried for everybody."""
        return ""

    def digest(self, rules: Mapping[QuotaName, float]) -> str:
        """The digest of quotas."""
        return quotas_digest((entity, key, value) for (entity, key), value in rules.items())


class TokensPart:
    """The delegation tokens: each one's document as ZooKeeper stores it. They hold at both sites if
    both derive HMACs from the same secret key; otherwise none is carried, and `links check` names
    the difference.
    """

    name = TOKENS

    def __init__(self, link: str) -> None:
        self._reads = Claim(link, UNKNOWN)

    async def read(self, source: KafkaClient, target: KafkaClient) -> RulesOfBoth[TokenName, str] | None:
        """All tokens; None where they could not hold at the target."""
        try:
            theirs, actual = await self._ask(source, self._reads, ()), await self._ask(target, self._reads, ())
        except UnsupportedApi:  # a site of an earlier release
            return None
        except BrokerError as error:
            if error.code in (ErrorCode.security_disabled, ErrorCode.delegation_token_auth_disabled):
                return None
            raise
        if theirs.secret_check != actual.secret_check:
            return None
        return RulesOfBoth(_documents(theirs), _documents(actual))

    async def write(
        self, client: KafkaClient, claim: Claim, to_set: Mapping[TokenName, str], to_remove: Collection[TokenName]
    ) -> None:
        """Set and remove tokens."""
        written: dict[TokenName, str | None] = {**to_set, **dict.fromkeys(to_remove)}
        entries = ({"token_id": token_id, "document": document} for (token_id, _), document in sorted(written.items()))
        await self._ask(client, claim, tuple(entries))

    def principal(self, identity: TokenName) -> str:
        """The owner, as which clients log in by the token."""
        return identity[1]

    def digest(self, rules: Mapping[TokenName, str]) -> str:
        """The digest of tokens."""
        return tokens_digest((token_id, document) for (token_id, _), document in rules.items())

    async def _ask(self, client: KafkaClient, claim: Claim, tokens: tuple[Mapping[str, Any], ...]) -> Any:
        connection = await controller_connection(client)
        request = {"link": claim.link, "link_epoch": claim.epoch, "tokens": tokens}
        answer = await connection.call(DELEGATION_TOKENS, request)
        check_outcome(answer, connection, DELEGATION_TOKENS)
        return answer


def _documents(answer: Any) -> dict[TokenName, str]:
    return {(token.token_id, token.owner): token.document for token in answer.tokens}


async def _where_authorizers_are(
    read: Callable[[KafkaClient], Awaitable[Rules[Identity, Value] | None]], source: KafkaClient, target: KafkaClient
) -> RulesOfBoth[Identity, Value] | None:
    theirs, actual = await read(source), await read(target)
    if theirs is None and actual is None:
        return None
    if theirs is None or actual is None:
        end = "source" if theirs is None else "standby"
        raise KafkaClientError(f"the {end} has no authorizer, the other site has one")
    return RulesOfBoth(theirs, actual)


def _check_authorizer_is_missing(error: BrokerError) -> None:
    if error.code is not ErrorCode.security_disabled:
        raise error
