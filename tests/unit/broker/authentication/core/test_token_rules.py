"""Rights to delegation tokens, with their time limits; and the tokens' form in ZooKeeper."""

from __future__ import annotations

import json

import pytest
from kio.schema.errors import ErrorCode

from broker.authentication.core.token_rules import TokenLifetimes, expired, is_shown, may_ask, new_token, renewed
from wire.rules.delegation_tokens import DelegationToken, token_hmac
from wire.rules.principals import ANONYMOUS, Principal
from wire.znodes.documents import MalformedZnode
from wire.znodes.token_znodes import decode_token, encode_token, merged_tokens, token_message

OWNER, REQUESTER, RENEWER, OTHER = (Principal("User", name) for name in ("o, w", "requester", "renewer", "other"))
LIFETIMES = TokenLifetimes(longest_ms=1000, renewal_ms=100)


def token(**changed: int) -> DelegationToken:
    made = new_token("id", (OWNER, REQUESTER), (RENEWER,), LIFETIMES, wanted_ms=-1, now_ms=5000)
    return made._replace(**changed)


@pytest.mark.parametrize(
    ("wanted_ms", "expires_at_ms", "ends_at_ms"),
    [(-1, 5100, 6000), (0, 5100, 6000), (50, 5050, 5050), (9999, 5100, 6000)],
)
def test_a_token_lives_as_long_as_asked_and_allowed(wanted_ms: int, expires_at_ms: int, ends_at_ms: int) -> None:
    made = new_token("id", (OWNER, OWNER), (), LIFETIMES, wanted_ms=wanted_ms, now_ms=5000)
    assert (made.expires_at_ms, made.ends_at_ms) == (expires_at_ms, ends_at_ms)


@pytest.mark.parametrize("principal", [OWNER, REQUESTER, RENEWER])
def test_owner_requester_and_renewers_renew_up_to_the_end(principal: Principal) -> None:
    assert renewed(token(), principal, LIFETIMES, wanted_ms=-1, now_ms=5050) == token(expires_at_ms=5150)
    assert renewed(token(), principal, LIFETIMES, wanted_ms=5000, now_ms=5050) == token(expires_at_ms=6000)
    assert expired(token(), principal, wanted_ms=0, now_ms=5050) == token(expires_at_ms=5050)
    assert expired(token(), principal, wanted_ms=-1, now_ms=9000) is None


def test_refusals_name_the_reason() -> None:
    assert renewed(None, OWNER, LIFETIMES, wanted_ms=1, now_ms=0) is ErrorCode.delegation_token_not_found
    assert renewed(token(), OTHER, LIFETIMES, wanted_ms=1, now_ms=0) is ErrorCode.delegation_token_owner_mismatch
    assert renewed(token(), OWNER, LIFETIMES, wanted_ms=1, now_ms=5101) is ErrorCode.delegation_token_expired
    assert expired(None, OWNER, wanted_ms=1, now_ms=0) is ErrorCode.delegation_token_not_found
    assert expired(None, OWNER, wanted_ms=-1, now_ms=0) is ErrorCode.delegation_token_not_found
    assert expired(token(), OTHER, wanted_ms=-1, now_ms=0) is ErrorCode.delegation_token_owner_mismatch
    assert not may_ask(ANONYMOUS, is_by_token=False)
    assert not may_ask(OWNER, is_by_token=True)
    assert may_ask(OWNER, is_by_token=False)


def test_a_client_sees_its_own_tokens_and_those_that_acls_show() -> None:
    assert is_shown(token(), RENEWER, None, lambda _: False)
    assert is_shown(token(), OTHER, None, lambda _: True)
    assert not is_shown(token(), OTHER, None, lambda _: False)
    assert not is_shown(token(), OWNER, {OTHER}, lambda _: True)
    assert not is_shown(token(), OWNER, (), lambda _: True)
    assert is_shown(token(), OTHER, {OWNER}, lambda _: True)


def test_zookeeper_has_kafka_s_json_and_no_hmac() -> None:
    stored = encode_token(token())
    assert json.loads(stored) == {
        "version": 3,
        "owner": "User%3Ao%2C%20w",
        "tokenRequester": "User%3Arequester",
        "renewers": ["User%3Arenewer"],
        "issueTimestamp": 5000,
        "maxTimestamp": 6000,
        "expiryTimestamp": 5100,
        "tokenId": "id",
    }
    assert decode_token("id", stored) == token()
    former = {key: value for key, value in json.loads(stored).items() if key != "tokenRequester"}
    assert decode_token("id", json.dumps({**former, "version": 2}).encode()).requester == OWNER
    assert token_hmac("secret", "id").hex().startswith("2aab23f3")


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenId": "other"},
        {"version": 4},
        {"version": "3"},
        {"owner": "unknown"},
        {"owner": 5},
        {"maxTimestamp": "x"},
        {"maxTimestamp": 1 << 63},
    ],
)
def test_a_node_that_is_no_token_is_named(changed: dict[str, object]) -> None:
    document = {**json.loads(encode_token(token())), **changed}
    with pytest.raises(MalformedZnode, match="/delegation_token/tokens/id"):
        decode_token("id", json.dumps(document).encode())


def test_an_image_takes_new_tokens_and_drops_removed_ones() -> None:
    known = merged_tokens({}, [token_message("id", token())], is_full=True)
    assert known == {"id": token()}
    assert merged_tokens(known, [], is_full=False) is known
    assert merged_tokens(known, [token_message("id", None)], is_full=False) == {}
