"""What a client that has no password learns of names by SCRAM: nothing, because unknown names look
like the stored ones.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import pytest

from broker.authentication.delegation_tokens import DelegationTokens
from broker.authentication.sasl_offers import ScramUsers, read_sasl_offer
from wire.identity.token_checks import TokenKeys
from wire.rules.scram import credential_of, encode_credential, salted_password

MECHANISM = "SCRAM-SHA-512"
PROPERTIES = {"sasl.enabled.mechanisms": MECHANISM, "sasl.jaas.config": "ScramLoginModule required;"}
OF_KAFKAS_TOOLS = b"1n4zx8ocfr0gkb7p2s6vm3yte9"


def stored(salt: bytes, iterations: int) -> Mapping[str, str]:
    salted = salted_password(MECHANISM, "secret", salt, iterations)
    return {MECHANISM: encode_credential(credential_of(MECHANISM, salted, salt=salt, iterations=iterations))}


def first_answer(users: ScramUsers, name: str, rest: str = "") -> tuple[bytes, int]:
    """The salt and the iterations in the first answer of a listener that starts."""
    offer = read_sasl_offer(PROPERTIES, users, TokenKeys())
    step = offer.mechanisms[MECHANISM]().step(f"n,,n={name},r=nonce{rest}".encode())
    found = re.fullmatch(r"r=[^,]+,s=([^,]+),i=(\d+)", step.answer.decode())
    assert found is not None
    return base64.b64decode(found[1]), int(found[2])


@pytest.mark.parametrize(
    ("salt", "iterations"), [(OF_KAFKAS_TOOLS, 8192), (bytes(range(18)), 4096), (bytes(64), 16384)]
)
def test_an_unknown_name_gets_a_salt_and_a_count_of_the_form_that_most_users_have(salt: bytes, iterations: int) -> None:
    users = ScramUsers()
    users.take({"ann": stored(salt, iterations), "ben": stored(salt, iterations), "cid": stored(b"other", 5000)})
    invented, count = first_answer(users, "nemo")
    assert (len(invented), count) == (len(salt), iterations)
    assert first_answer(users, "ann") == (salt, iterations)
    is_text = re.compile(rb"[0-9a-z]+").fullmatch
    assert bool(is_text(invented)) == bool(is_text(salt))


def test_the_form_follows_the_stored_users() -> None:
    users = ScramUsers()
    assert first_answer(users, "nemo")[1] == 4096
    users.take({"ann": stored(OF_KAFKAS_TOOLS, 8192)})
    assert first_answer(users, "nemo")[1] == 8192
    users.take({"ann": {MECHANISM: "what another program wrote"}})
    assert first_answer(users, "nemo")[1] == 4096


def test_brokers_with_the_same_secret_give_an_unknown_name_the_same_salt() -> None:
    of_brokers = [first_answer(ScramUsers(DelegationTokens("shared")), "nemo") for _ in range(2)]
    assert of_brokers[0] == of_brokers[1]
    others = {
        first_answer(ScramUsers(DelegationTokens(secret)), name) for secret, name in (("x", "nemo"), ("shared", "no"))
    }
    assert len(others | set(of_brokers)) == 3


def test_an_unknown_token_looks_like_a_token() -> None:
    users = ScramUsers(DelegationTokens("shared"))
    users.take({"ann": stored(OF_KAFKAS_TOOLS, 8192)})
    salt, iterations = first_answer(users, "no-token", ",tokenauth=true")
    assert (len(salt), iterations) == (18, 4096)
