"""Delegation tokens at the controller: each token of a request for itself, expiry, and tokens that
other tools wrote.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import Publish
from controller.core.draft import Draft
from controller.core.entities import token_admin
from controller.core.entity_commands import (
    AlterDelegationTokens,
    DelegationTokenChange,
    DelegationTokensRead,
    RemoveExpiredTokens,
)
from controller.core.state import facts
from controller.core.state.cluster import Cluster
from tests.support.memory.site_model import RULES
from wire.rules.delegation_tokens import DelegationToken
from wire.rules.principals import Principal


def token(token_id: str, expires_at_ms: int = 100) -> DelegationToken:
    owner = Principal("User", "anna")
    return DelegationToken(token_id, owner, owner, (), 0, expires_at_ms, 1000)


def draft_with(*tokens: DelegationToken) -> Draft:
    cluster = Cluster(rules=RULES, controller_id=1, controller_epoch=1)
    cluster.delegation_tokens.update({one.token_id: one for one in tokens})
    return Draft(cluster)


def test_a_renewal_of_a_token_that_is_gone_is_refused() -> None:
    draft = draft_with(token("a"), token("b"))
    changes = (
        DelegationTokenChange(token_id="a", token=token("a", 200)),
        DelegationTokenChange(token_id="gone", token=token("gone", 200)),
        DelegationTokenChange(token_id="b", token=None),
        DelegationTokenChange(token_id="new", token=token("new"), is_new=True),
    )
    token_admin.consider(draft, AlterDelegationTokens(changes=changes))
    decision = draft.finish("test")
    ok, gone = ErrorCode.none, ErrorCode.delegation_token_not_found
    assert [outcome.error for outcome in decision.quotas] == [ok, gone, ok, ok]
    assert decision.facts == (
        facts.DelegationTokenReplaced(token_id="a", token=token("a", 200)),
        facts.DelegationTokenReplaced(token_id="b", token=None),
        facts.DelegationTokenReplaced(token_id="new", token=token("new")),
    )
    (effect,) = decision.effects
    assert isinstance(effect, Publish)
    assert effect.delegation_tokens == {"a", "b", "new"}


def test_expired_tokens_are_removed() -> None:
    draft = draft_with(token("early"), token("late", 300))
    token_admin.consider(draft, RemoveExpiredTokens(now_ms=200))
    assert draft.finish("test").facts == (facts.DelegationTokenReplaced(token_id="early", token=None),)


def test_tokens_that_another_tool_wrote_are_taken_and_not_stored_again() -> None:
    draft = draft_with(token("a"), token("b"))
    token_admin.consider(draft, DelegationTokensRead(tokens={"b": token("b"), "c": token("c")}))
    assert draft.finish("test").facts == (
        facts.DelegationTokenReplaced(token_id="a", token=None, must_store=False),
        facts.DelegationTokenReplaced(token_id="c", token=token("c"), must_store=False),
    )
