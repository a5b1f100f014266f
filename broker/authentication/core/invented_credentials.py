"""The salts and iteration counts that unknown names get in a SCRAM exchange. Pure.

The first answer of an exchange shows a salt and a count. So that it does not show which names
exist, a name without a credential gets them too: the same ones each time, and of the form that most
stored credentials of the mechanism have. The form matters, because clients make the salts: the
tools of Apache Kafka make text of 25 or 26 letters and digits, Antipode 18 random bytes, and a user
may have any count from 4096 to 16384 (KIP-554).

Caller: broker/authentication/sasl_offers.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from wire.rules.scram import ITERATIONS_MIN, SALT_BYTES, ScramCredential, signed

_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


class CredentialForm(NamedTuple):
    """What an attacker sees of a credential besides its random part. `is_text`: the salt has
    digits and small letters alone.
    """

    salt_bytes: int = SALT_BYTES
    is_text: bool = False
    iterations: int = ITERATIONS_MIN


def usual_form(credentials: Iterable[ScramCredential]) -> CredentialForm:
    """The form that most of these have, and of several such forms the one that comes first; the
    form of credentials that brokers make themselves if there are none.
    """
    forms = Counter(
        CredentialForm(len(one.salt), bool(one.salt) and set(one.salt) <= set(_LETTERS), one.iterations)
        for one in credentials
    )
    return forms.most_common(1)[0][0] if forms else CredentialForm()


def invented_salt(mechanism: str, name: str, *, secret: bytes, form: CredentialForm) -> bytes:
    """The salt of an unknown name, the same for the same secret and form."""
    made = b""
    while len(made) < form.salt_bytes:
        made += signed(mechanism, secret, len(made).to_bytes(4, "big") + name.encode())
    made = made[: form.salt_bytes]
    return bytes(_LETTERS[byte % len(_LETTERS)] for byte in made) if form.is_text else made
