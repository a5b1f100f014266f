"""Signed tokens of OAUTHBEARER: a token on which something was changed is refused as InvalidToken,
or it says what its signer signed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.lone_brokers.token_signer import TokenSigner
from wire.identity.core.json_web_tokens import InvalidToken, PublicKey, TokenRules, holder_of_token, read_key_set

RULES = TokenRules(audiences=frozenset({"kafka"}))
NOW_MS = 1_000_000
TIMES = {"iat": NOW_MS // 1000, "nbf": NOW_MS // 1000, "exp": NOW_MS // 1000 + 600}


@cache
def _signed() -> tuple[dict[str, PublicKey], tuple[str, ...]]:
    """The key set, and tokens by each algorithm."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "keys.json"
        signer = TokenSigner(file)
        tokens = (
            signer.token("RS256", sub="anna", **TIMES),
            signer.token("ES256", sub="bob", aud=["kafka", "other"], **TIMES),
            signer.token("none", sub="eve", **TIMES),
        )
        return read_key_set(file.read_text()), tokens


def run(data: bytes) -> None:
    """A token whose header or claims differ from the signed ones gives no login."""
    keys, tokens = _signed()
    text = data.decode(errors="replace")
    try:
        holder = holder_of_token(text, RULES, keys, NOW_MS)
    except InvalidToken:
        return
    content = text.rpartition(".")[0]
    assert content in {token.rpartition(".")[0] for token in tokens[:2]}, holder


def seeds() -> Sequence[bytes]:
    """Tokens of both algorithms, one without signature, and parts of one under those of another."""
    _, tokens = _signed()
    (header, claims, _), (_, _, signature), unsigned = (token.split(".") for token in tokens)
    mixed = (f"{header}.{claims}.{signature}", f"{unsigned[0]}.{claims}.", f"{header}.{unsigned[1]}.{signature}")
    return [*(token.encode() for token in tokens), *(text.encode() for text in mixed)]
