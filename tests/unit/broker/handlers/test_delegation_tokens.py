"""Delegation tokens on their way between the sites of a link: what a mirror reads and writes, and
clients' requests that a standby hands on with the principal of the client.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from broker.authentication.delegation_tokens import DelegationTokens
from broker.handlers.links import delegation_tokens, scram_users
from broker.handlers.tokens import (
    client_token_request,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from broker.handlers.tokens.token_requests import TokenRequests
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch
from broker.metadata.request_context import FORWARDED_CLIENT_ID, RequestContext
from controller.core.link_claims import LinkClaim, claim_refusal
from tests.support.clock import ManualClock
from wire.control import controller_pb2 as pb
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.protocol import schemas
from wire.protocol.entity_building import build_entity
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.rules.delegation_tokens import DelegationToken, token_hmac, token_password
from wire.rules.principals import ANONYMOUS, Principal
from wire.znodes.token_znodes import encode_token

SECRET = "shared by the sites"
ALICE, BOB, MIRROR = (Principal("User", name) for name in ("alice", "bob", "mirror"))
NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
DESCRIBE = describe_delegation_token
CHANGES = (create_delegation_token, renew_delegation_token, expire_delegation_token)


def link(active: str = "a", *, is_routed: bool = True) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        active_site=active,
        epoch=3,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[".*"],
        is_routed=is_routed,
    )


class Site:
    """One broker of a site, whose controller stores tokens and reaches it at once."""

    def __init__(self, name: str, *, secret: str = SECRET, has_authorizer: bool = True, active: str = "a") -> None:
        self.image = apply_batch(
            ClusterImage(site=name, node_id=1),
            ControlBatch(is_full=True, controller_epoch=1, links=[link(active)]),
        )
        self.other: Site | None = None
        self.is_fenced = False
        self.may_alter = True
        self.is_enabled = has_authorizer
        self.tokens = DelegationTokens(secret, ManualClock(NOW_MS))
        self.doors: Any = SimpleNamespace(
            authorizer=SimpleNamespace(
                is_enabled=has_authorizer, may=lambda *_, **__: False, may_cluster=lambda *_: self.may_alter
            ),
            clock=ManualClock(NOW_MS),
            cluster=self,
            configs=SimpleNamespace(current=SimpleNamespace(token_lifetime_ms_max=7 * DAY_MS, token_expiry_ms=DAY_MS)),
            controller=self,
            delegation_tokens=self.tokens,
            token_requests=TokenRequests(
                self.tokens,
                self,  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
                self,  # type: ignore[arg-type]
            ),
        )

    async def alter_delegation_tokens(self, request: pb.AlterDelegationTokensRequest) -> pb.AlterDelegationTokensReply:
        """As the controller decides it (`controller/core/entities/token_admin.py`)."""
        claim, known = LinkClaim(link=request.link, epoch=request.link_epoch), self.image.links["a-b"]
        is_refused = bool(request.link and claim_refusal(claim, known, site=self.image.site, what="tokens"))
        results = []
        for change in request.tokens:
            is_known = change.token.token_id in self.image.delegation_tokens
            error = ErrorCode.none if change.is_new or is_known else ErrorCode.delegation_token_not_found
            error = ErrorCode.policy_violation if self.is_fenced or is_refused else error
            results.append(pb.QuotaResult(error_code=error))
            if error is ErrorCode.none:
                self.image = apply_batch(self.image, ControlBatch(controller_epoch=1, delegation_tokens=[change.token]))
        self.tokens.take(self.image.delegation_tokens)
        return pb.AlterDelegationTokensReply(results=results)

    async def ask_about_tokens(self, _: ClusterImage, site: str, context: RequestContext, request: Any) -> Any:
        """Hand on to the other site; None if it is silent or refuses."""
        assert site == "a"
        if self.other is None:
            return None
        asked = {
            "principal_type": context.principal.type,
            "principal_name": context.principal.name,
            "client_address": context.client_address,
            "request_key": context.api_key,
            "request_version": context.api_version,
            "request": schemas.encode(request),
        }
        answer = await private(self.other, client_token_request, asked)
        if answer.error_code is not ErrorCode.none:
            return None
        return schemas.decode(schemas.response_type(context.api_key, context.api_version), answer.response)


def context(module: Any, principal: Principal = ALICE, **given: Any) -> RequestContext:
    fields: dict[str, Any] = {
        "api_key": module.API_KEY,
        "api_version": module.MAX_VERSION,
        "correlation_id": 1,
        "client_id": "c",
        "listener": "CLIENT",
        "client_address": "10.0.0.1:5",
        "principal": principal,
    }
    return RequestContext(**{**fields, **given})


async def private(site: Site, module: Any, values: dict[str, Any], principal: Principal = MIRROR) -> Any:
    request = build_entity(schemas.request_type(module.API_KEY, 0), values)
    decoded = schemas.decode(type(request), schemas.encode(request))
    answer = await module.handle(decoded, context(module, principal, client_software=CLIENT_SOFTWARE_NAME), site.doors)
    return schemas.decode(type(answer), schemas.encode(answer))


async def mirror(site: Site, **tokens: str | None) -> Any:
    """A mirror's request at the epoch of the link: to read, or to write these documents."""
    entries = [{"token_id": token_id, "document": document} for token_id, document in tokens.items()]
    return await private(site, delegation_tokens, {"link": "a-b", "link_epoch": 3, "tokens": entries})


def ms(number: int) -> i64Timedelta:
    return i64Timedelta.parse(timedelta(milliseconds=number))


async def ask(site: Site, module: Any, principal: Principal = ALICE, hmac: bytes = b"", **given: Any) -> Any:
    """A client's request: a token of its own, or one about the token with this HMAC."""
    values = {
        create_delegation_token: {"renewers": [], "max_lifetime": ms(-1)},
        renew_delegation_token: {"hmac": hmac, "renew_period": ms(2 * DAY_MS)},
        expire_delegation_token: {"hmac": hmac, "expiry_time_period": ms(-1)},
        describe_delegation_token: {"owners": None},
    }[module]
    if module is create_delegation_token:
        values |= {"owner_principal_type": None, "owner_principal_name": None}
    request = build_entity(schemas.request_type(module.API_KEY, module.MAX_VERSION), values)
    return await module.handle(request, context(module, principal, **given), site.doors)


def pair(**of_b: Any) -> tuple[Site, Site]:
    a, b = Site("a"), Site("b", **of_b)
    b.other = a
    return a, b


async def test_a_client_of_the_standby_has_tokens_of_the_active_site_as_its_own_principal() -> None:
    a, b = pair()
    made = await ask(b, create_delegation_token)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        ErrorCode.none,
        "alice",
        "alice",
    )
    assert made.hmac == token_hmac(SECRET, made.token_id)
    assert list(a.image.delegation_tokens) == [made.token_id]
    assert not b.image.delegation_tokens, "the mirror carries it"
    refused = await ask(b, renew_delegation_token, BOB, hmac=made.hmac)
    assert refused.error_code is ErrorCode.delegation_token_owner_mismatch
    renewed = await ask(b, renew_delegation_token, hmac=made.hmac)
    assert renewed.error_code is ErrorCode.none
    assert a.image.delegation_tokens[made.token_id].expires_at_ms == NOW_MS + 2 * DAY_MS
    assert [one.token_id for one in (await ask(b, DESCRIBE)).tokens] == [made.token_id]
    assert (await ask(b, DESCRIBE, BOB)).tokens == ()
    assert (await ask(b, expire_delegation_token, hmac=made.hmac)).error_code is ErrorCode.none
    assert not a.image.delegation_tokens


@pytest.mark.parametrize("module", CHANGES)
async def test_while_the_active_site_is_silent_no_token_changes_and_clients_ask_again(module: Any) -> None:
    b = Site("b")
    await mirror(b, held=document("held"))
    before = b.image.delegation_tokens
    answer = await ask(b, module, hmac=token_hmac(SECRET, "held"))
    assert answer.error_code is ErrorCode.request_timed_out
    assert b.image.delegation_tokens is before
    assert [one.token_id for one in (await ask(b, DESCRIBE)).tokens] == ["held"], "a list shows its own"


@pytest.mark.parametrize(
    "given", [{"client_software": CLIENT_SOFTWARE_NAME}, {"client_id": FORWARDED_CLIENT_ID}], ids=["own tool", "broker"]
)
async def test_own_tools_and_brokers_ask_for_the_site_s_own_tokens(given: dict[str, str]) -> None:
    a, b = pair()
    assert (await ask(b, create_delegation_token, **given)).error_code is ErrorCode.none
    assert (len(a.image.delegation_tokens), len(b.image.delegation_tokens)) == (0, 1)


async def test_without_an_authorizer_each_site_has_its_own_tokens() -> None:
    a, b = pair(has_authorizer=False)
    assert (await ask(b, create_delegation_token)).error_code is ErrorCode.none
    assert (len(a.image.delegation_tokens), len(b.image.delegation_tokens)) == (0, 1)
    without = Site("a", has_authorizer=False)
    refused = await private(without, client_token_request, handed_on(create_delegation_token.API_KEY))
    assert refused.error_code is ErrorCode.security_disabled
    assert (await mirror(without)).error_code is ErrorCode.security_disabled


@pytest.mark.parametrize(
    "given", [{"principal": ANONYMOUS}, {"is_by_token": True}], ids=["without identity", "by a token"]
)
async def test_who_may_have_no_token_gets_none_through_the_standby(given: dict[str, Any]) -> None:
    a, b = pair()
    refused = await ask(b, create_delegation_token, **given)
    assert refused.error_code is ErrorCode.delegation_token_request_not_allowed
    assert not a.image.delegation_tokens


def handed_on(api_key: int, *, version: int = 2, request: bytes = b"") -> dict[str, Any]:
    return {
        "principal_type": "User",
        "principal_name": "alice",
        "client_address": "10.0.0.1:5",
        "request_key": api_key,
        "request_version": version,
        "request": request,
    }


async def test_the_active_site_answers_requests_about_tokens_alone() -> None:
    a = Site("a")
    cases = {
        ErrorCode.policy_violation: [handed_on(3), handed_on(36), handed_on(renew_delegation_token.API_KEY, version=9)],
        ErrorCode.invalid_request: [handed_on(renew_delegation_token.API_KEY, request=b"\xff")],
    }
    for error, attempts in cases.items():
        for attempt in attempts:
            assert (await private(a, client_token_request, attempt)).error_code is error, attempt
    follower = Site("b")
    refused = await private(follower, client_token_request, handed_on(DESCRIBE.API_KEY))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.policy_violation,
        "this site follows site a itself",
    )


async def test_clients_ask_again_while_the_site_is_fenced() -> None:
    a = Site("a")
    a.is_fenced = True
    assert (await ask(a, create_delegation_token)).error_code is ErrorCode.request_timed_out


def document(token_id: str, owner: Principal = ALICE) -> str:
    token = DelegationToken(token_id, owner, owner, (BOB,), NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS)
    return encode_token(token).decode()


async def test_a_mirror_reads_tokens_without_secrets_and_writes_them_at_the_standby_of_its_link() -> None:
    a, b = pair()
    made = await ask(a, create_delegation_token)
    read = await mirror(a)
    ((token_id, owner, text),) = [(one.token_id, one.owner, one.document) for one in read.tokens]
    assert (token_id, owner) == (made.token_id, "User:alice")
    assert read.secret_check == b.tokens.secret_check
    assert token_password(made.hmac) not in text

    assert (await mirror(b, **{token_id: text})).error_code is ErrorCode.none
    assert b.image.delegation_tokens == a.image.delegation_tokens
    assert b.tokens.hmac_of(token_id) == made.hmac, "clients log in by it at both sites"
    assert (await mirror(b)).tokens == read.tokens
    assert (await mirror(b, **{token_id: None, "gone": None})).error_code is ErrorCode.none, "b removed one by itself"
    assert not b.image.delegation_tokens

    assert (await mirror(a, **{token_id: None})).error_code is ErrorCode.policy_violation
    entries = [{"token_id": token_id, "document": text}]
    for epoch in (2, 4):
        stale = {"link": "a-b", "link_epoch": epoch, "tokens": entries}
        assert (await private(b, delegation_tokens, stale)).error_code is ErrorCode.policy_violation
    for wrong in ("{}", document("another id")):
        assert (await mirror(b, **{token_id: wrong})).error_code is ErrorCode.invalid_request
    b.may_alter = False
    user = {"name": "eve", "mechanism": "SCRAM-SHA-256", "credential": "any"}
    writes = {"link": "a-b", "link_epoch": 3, "users": [user]}
    assert (await private(b, scram_users, writes)).error_code is ErrorCode.cluster_authorization_failed
    assert (await mirror(b, **{token_id: text})).error_code is ErrorCode.cluster_authorization_failed
    assert not b.image.delegation_tokens
    assert list(a.image.delegation_tokens) == [token_id]
    assert (await mirror(Site("b", secret=""))).error_code is ErrorCode.delegation_token_auth_disabled
    assert (await mirror(Site("b", secret="other"))).secret_check != read.secret_check
