"""SCRAM against the example of RFC 7677, and against brokers that cheat."""

from __future__ import annotations

import pytest

from wire.client.scram import ScramClient, ScramRefused

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(username: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", username=username, password=password, nonce=NONCE)


def test_the_example_of_the_rfc() -> None:
    scram = client()
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(SERVER_FINAL)


def test_commas_and_equals_signs_of_a_name_are_escaped() -> None:
    assert client("a=b,c").first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    "server_first",
    [
        b"r=somebodyelses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"i=4096", b"i=1"),
        SERVER_FIRST.replace(b"i=4096", b"i=999999999"),
        SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000),
        SERVER_FIRST.replace(b"i=4096", "i=4096²".encode()),
        SERVER_FIRST.replace(b"s=W22", b"s=\xff"),
        SERVER_FIRST.replace(b"s=W22", b"s=!!!"),
        b"",
    ],
)
def test_a_broker_that_does_not_keep_to_the_rules_is_refused(server_first: bytes) -> None:
    with pytest.raises(ScramRefused):
        client().final(server_first)


@pytest.mark.parametrize("server_final", [b"v=AAAA", b"e=invalid-proof", b"", b"v=!"])
def test_a_broker_that_does_not_know_the_password_is_refused(server_final: bytes) -> None:
    scram = client()
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramRefused):
        scram.verify(server_final)
