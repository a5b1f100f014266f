"""PLAIN and SCRAM at the server's side: RFC 7677's exchange, our own client's, and messages that
are wrong.
"""

from __future__ import annotations

import base64

import pytest

from broker.authentication.core.sasl_mechanisms import Login, LoginRefused, PlainExchange, ScramExchange
from wire.client.scram import ScramClient, ScramRefused
from wire.rules.scram import ScramCredential, credential_of, decode_credential, encode_credential, salted_password

RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def credential(mechanism: str, password: str, salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def exchange(mechanism: str, users: dict[str, ScramCredential], nonce: str = "server") -> ScramExchange:
    """A name that begins with `token-` is the id of a delegation token of `owner`."""

    def look_up(_mechanism: str, name: str, is_token: bool) -> tuple[ScramCredential, Login] | None:
        if name not in users or is_token is not name.startswith("token-"):
            return None
        return users[name], Login("owner", 77, is_by_token=True) if is_token else Login(name)

    return ScramExchange(mechanism, look_up, nonce=nonce, invent=lambda name, _: (name.encode(), 4096))


def test_the_exchange_of_rfc_7677_is_answered_to_the_letter() -> None:
    server = exchange(
        "SCRAM-SHA-256", {"user": credential("SCRAM-SHA-256", "pencil", RFC_SALT)}, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    first = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert first.answer == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = server.step(b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert final == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", Login("user"))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("name", "password"), [("a,b=c", "right"), ("a,b=c", "wrong"), ("nemo", "right")])
def test_only_the_right_password_of_a_known_name_logs_in(mechanism: str, name: str, password: str) -> None:
    server = exchange(mechanism, {"a,b=c": credential(mechanism, "right")})
    client = ScramClient(mechanism, username=name, password=password, nonce="client")
    final = client.final(server.step(client.first()).answer)
    if (name, password) == ("a,b=c", "right"):
        step = server.step(final)
        client.verify(step.answer)
        assert step.login == Login(name)
    else:
        with pytest.raises(LoginRefused, match=f"invalid credentials with SASL mechanism {mechanism}"):
            server.step(final)


@pytest.mark.parametrize("is_by_token", [True, False])
def test_a_delegation_token_logs_its_owner_in_and_is_no_user_s_name(is_by_token: bool) -> None:
    server = exchange("SCRAM-SHA-256", {"token-1": credential("SCRAM-SHA-256", "hmac")})
    client = ScramClient("SCRAM-SHA-256", username="token-1", password="hmac", nonce="c", is_by_token=is_by_token)
    final = client.final(server.step(client.first()).answer)
    if is_by_token:
        step = server.step(final)
        client.verify(step.answer)
        assert step.login == Login("owner", 77, is_by_token=True)
    else:
        with pytest.raises(LoginRefused):
            server.step(final)


def test_a_client_that_gets_another_server_s_signature_knows_it() -> None:
    client = ScramClient("SCRAM-SHA-256", username="u", password="p", nonce="c")
    client.final(exchange("SCRAM-SHA-256", {}).step(client.first()).answer)
    with pytest.raises(ScramRefused, match="does not know the password"):
        client.verify(b"v=AAAA")


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff", b"n,,n=u", b"p=tls,,n=u,r=c", b"n,,n=u,r=", b"n,a=other,n=u,r=c", b"n,,m=x,n=u,r=c"],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        exchange("SCRAM-SHA-256", {"u": credential("SCRAM-SHA-256", "p")}).step(message)


@pytest.mark.parametrize(
    "message",
    [b"", b"c=biws,r=cserver", b"c=biws,r=other,p=AAAA", b"c=eSws,r=cserver,p=AAAA", b"c=biws,r=cserver,p=AAAA",
     b"c=!,r=cserver,p=AAAA", b"c=biws,r=cserver,p=!"],
)  # fmt: skip
def test_a_final_message_that_is_wrong_is_refused(message: bytes) -> None:
    server = exchange("SCRAM-SHA-256", {"u": credential("SCRAM-SHA-256", "p")})
    server.step(b"n,,n=u,r=c")
    with pytest.raises(LoginRefused):
        server.step(message)


def test_plain_takes_the_password_of_its_line_and_no_other() -> None:
    def log_in(message: bytes) -> object:
        return PlainExchange({"alice": "pässword"}).step(message)

    assert log_in("\0alice\0pässword".encode()) == (b"", Login("alice"))
    assert log_in("alice\0alice\0pässword".encode()) == (b"", Login("alice"))
    for wrong in (
        b"\0alice\0wrong",
        b"\0nemo\0wrong",
        b"\0\0x",
        b"\0alice\0",
        b"bob\0alice\0p",
        b"alice",
        b"\xff\0a\0b",
    ):
        with pytest.raises(LoginRefused):
            log_in(wrong)


def test_a_credential_is_kept_as_kafka_keeps_it() -> None:
    made = credential("SCRAM-SHA-256", "pencil", RFC_SALT)
    text = encode_credential(made)
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert decode_credential(text) == made
    for wrong in ("", "salt=a", text.replace("iterations=4096", "iterations=x"), text.replace("salt=", "salt=!")):
        with pytest.raises(ValueError, match="accepted: salt=BASE64"):
            decode_credential(wrong)
