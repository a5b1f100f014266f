"""Messages of SASL, tokens, key sets, login lines, certificates' subjects, and the headers, users
and rules of the HTTP bridge: each reader refuses malformed input with the error that it documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cache

from bridge.core.authorization_header import read_authorization
from bridge.core.impersonation import read_rules
from bridge.core.password_file import read_passwords
from broker.authentication.core.oauth_bearer import OauthBearerExchange
from broker.authentication.core.sasl_login import SaslLogin, SaslOffer
from broker.authentication.core.sasl_mechanisms import Login, PlainExchange, ScramExchange
from wire.identity.core.distinguished_names import subject_of
from wire.identity.core.json_web_tokens import InvalidToken, TokenRules, holder_of_token, read_key_set
from wire.identity.core.principal_mapping_rules import PrincipalRules
from wire.rules.jaas import parse_jaas
from wire.rules.scram import ScramCredential, credential_of, decode_credential, salted_password

SEPARATOR = b"\n--\n"
"""Between the messages of one exchange."""
MECHANISM = "SCRAM-SHA-256"
RULES = TokenRules(is_unsecured=True)


@cache
def _credential() -> ScramCredential:
    salted = salted_password(MECHANISM, "pencil", b"salt", 4096)
    return credential_of(MECHANISM, salted, salt=b"salt", iterations=4096)


def _check_token(token: str) -> Login:
    return Login(*holder_of_token(token, RULES, {}, 0))


def _read_rules(text: str) -> None:
    """Lines of a file of rules, of the HTTP bridge."""
    lines = (line.partition("=") for line in text.splitlines())
    read_rules({key: value for key, _, value in lines})


def run(data: bytes) -> None:
    """Every reader is given the bytes; a refusal after one message leaves no login."""
    messages = data.split(SEPARATOR)
    offer = SaslOffer(
        mechanisms={
            "PLAIN": lambda: PlainExchange({"user": "pencil"}),
            MECHANISM: lambda: ScramExchange(
                MECHANISM, lambda *_: (_credential(), Login("user")), nonce="server", invent=lambda *_: (b"salt", 4096)
            ),
            "OAUTHBEARER": lambda: OauthBearerExchange(_check_token),
        },
        session_ms_max={},
        failure_delay_ms=0,
    )
    for mechanism in offer.mechanisms:
        login = SaslLogin(offer)
        login.handshake(mechanism, 1, 0)
        for message in messages:
            answer = login.authenticate(message, now_ms=0, monotonic_ms=0)
            assert not (answer.is_refused and login.login is not None and len(messages) == 1)
    text = data.decode(errors="replace")
    parse_jaas(text)
    with contextlib.suppress(InvalidToken):
        _check_token(text)
    for read in (read_key_set, decode_credential, PrincipalRules, read_authorization, read_passwords, _read_rules):
        with contextlib.suppress(ValueError):
            read(text)
    with contextlib.suppress(ValueError):
        subject_of(data)


def seeds() -> Sequence[bytes]:
    """One message of each kind."""
    return [
        b"\0user\0pencil",
        SEPARATOR.join((b"n,,n=user,r=client", b"c=biws,r=clientserver,p=AAAA")),
        SEPARATOR.join((b"n,,n=token,r=client,tokenauth=true", b"c=biws,r=clientserver,p=AAAA")),
        b"n,,\x01auth=Bearer e30.e30.\x01\x01",
        b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5fQ.",
        b'{"keys":[{"kty":"EC","crv":"P-256","kid":"k","x":"AA","y":"AA"},{"kty":"RSA","n":"AQ","e":"AQAB"}]}',
        b"salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096",
        b'a.b.ScramLoginModule required username="u" password="p\\"q";',
        b"Basic dXNlcjpwZW5jaWw=",
        b"Bearer a.b.c",
        b"user:$2b$10$" + b"a" * 53,
        b"impersonation.rules=r\nimpersonation.r.principals=a|b\nimpersonation.r.client.sasl.username=u",
        b"RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    ]
