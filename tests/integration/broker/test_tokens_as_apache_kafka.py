"""Tokens of OAUTHBEARER at our broker and at Apache Kafka: the same verdicts, and the same answers
on the wire, for good tokens and for each way in which a token can be wrong.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from kio.schema.errors import ErrorCode

from deploy.apache_kafka import SMALL_JVM, ApacheKafkaServer
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.raw_client import RawClient
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.apache_kafka import FEW_PARTITIONS, READY_WITHIN_MS
from tests.support.processes.ports import LOOPBACK, free_ports
from tests.support.processes.processes import Processes

pytestmark = [pytest.mark.integration, pytest.mark.java]

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
AUDIENCE, ISSUER = "kafka", "https://login.example.org"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
REFUSED = b'{"status":"invalid_token"}'


class Peers(NamedTuple):
    """The ports at which clients log in by a token, and the server that signs for both."""

    ours: int
    kafka: int
    signer: TokenSigner


@pytest.fixture(scope="module")
def peers(
    session_processes: Processes, kafka_programs: KafkaPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Peers:
    directory = tmp_path_factory.mktemp("tokens")
    signer = TokenSigner(directory / "keys.json")
    rules = {
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    ours = LoneBroker(
        session_processes,
        directory / "ours",
        **{
            "listeners": f"CLIENT://{LOOPBACK}:0,TOKENS://{LOOPBACK}:0",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            **{f"listener.name.tokens.{key}": value for key, value in rules.items()},
        },
    )
    port, controller_port, tokens_port = free_ports(3)
    listeners = {"PLAINTEXT": port, "TOKENS": tokens_port, "CONTROLLER": controller_port}
    settings = {
        **FEW_PARTITIONS,
        "listeners": ",".join(f"{name}://{LOOPBACK}:{number}" for name, number in listeners.items()),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},TOKENS://{LOOPBACK}:{tokens_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.tokens.oauthbearer.sasl.jaas.config": MODULE,
        "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        **{f"listener.name.tokens.oauthbearer.{key}": value for key, value in rules.items()},
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={rules['sasl.oauthbearer.jwks.endpoint.url']}"
    server = ApacheKafkaServer(
        name="kafka",
        directory=directory / "kafka",
        port=port,
        controller_port=controller_port,
        jvm=(*SMALL_JVM, allowed),
        settings=settings,
    )
    server.format()
    session_processes.run(server.child()).wait_ready(server.is_serving, READY_WITHIN_MS)
    return Peers(ours.facts["ports"]["TOKENS"], tokens_port, signer)


def answers(port: int, token: str, *, authorization: str = "") -> list[tuple[ErrorCode, bytes]]:
    """A broker's responses to the token and, where it refuses the token, to the confirmation that a
    client sends then.
    """
    said = []
    with RawClient(port) as client:
        assert client.call(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"}).error_code is ErrorCode.none
        first = f"n,{authorization},\x01auth=Bearer {token}\x01\x01".encode()
        for message in (first, b"\x01"):
            answer = client.call(SASL_AUTHENTICATE, 2, {"auth_bytes": message})
            said.append((answer.error_code, answer.auth_bytes))
            if answer.error_code or not answer.auth_bytes:
                break
    return said


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def with_header(token: str, **changes: Any) -> str:
    """Another header before the same claims, with the signature as it was."""
    header, claims, signature = token.split(".")
    known = json.loads(base64.urlsafe_b64decode(header + "=="))
    changed = {key: value for key, value in {**known, **changes}.items() if value is not None}
    return f"{text(json.dumps(changed).encode())}.{claims}.{signature}"


def with_claims(token: str, **changes: Any) -> str:
    """Other claims under the same signature."""
    header, claims, signature = token.split(".")
    known = json.loads(base64.urlsafe_b64decode(claims + "=="))
    return f"{header}.{text(json.dumps({**known, **changes}).encode())}.{signature}"


def by_shared_key(token: str, key: bytes) -> str:
    """Sign the token by HS256 with the public key as the secret. A verifier without a list of
    algorithms accepts such a token.
    """
    header = text(json.dumps({"alg": "HS256", "kid": "RS256"}).encode())
    signed = f"{header}.{token.split('.')[1]}"
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(signed.encode())
    return f"{signed}.{text(made.finalize())}"


Make = Callable[[TokenSigner], str]
GOOD: Mapping[str, Any] = {"sub": "anna", "iss": ISSUER, "aud": AUDIENCE}


def claims(**changes: Any) -> Make:
    """The claims of a token with changes: numbers are seconds from now, and None leaves a claim
    out.
    """

    def make(signer: TokenSigner) -> str:
        given = {"iat": 0, **GOOD, **changes}
        now = time.time()
        return signer.token(
            **{key: now + value if isinstance(value, int | float) else value for key, value in given.items()}
        )

    return make


def changed(change: Callable[[str], str], algorithm: str = "RS256") -> Make:
    return lambda signer: change(signer.token(algorithm, iat=time.time(), **GOOD))


ACCEPTED: Mapping[str, Make] = {
    "RS256": changed(str),
    "ES256": changed(str, "ES256"),
    "one of several audiences": claims(aud=["other", AUDIENCE]),
    "expired within the skew of clocks": claims(exp=-10, iat=-100),
    "issued in the future": claims(iat=300),
    "not yet valid within the skew of clocks": claims(nbf=10),
    "a fraction of a second": claims(exp=600.5),
    "no scope": claims(scope=None),
    "scopes as a list": claims(scope=["read", "write"]),
}
REFUSALS: Mapping[str, Make] = {
    "another audience": claims(aud="other"),
    "no audience": claims(aud=None),
    "an audience that begins like ours": claims(aud="kafka-other"),
    "another issuer": claims(iss="https://login.example.org/"),
    "no issuer": claims(iss=None),
    "expired": claims(exp=-600),
    "no expiry": claims(exp=None),
    "an expiry that is no number": claims(exp="soon"),
    "not yet valid": claims(nbf=600),
    "no subject": claims(sub=None),
    "an empty subject": claims(sub=""),
    "a subject that is no text": claims(sub=["anna"]),
    "no time of issue": claims(iat=None),
    "a time of issue that is no number": claims(iat="now"),
    "an expiry before the time of issue": claims(exp=-5, iat=0),
    "an expiry before its validity begins": claims(exp=-5, nbf=5, iat=-100),
    "without signature by alg none": lambda signer: signer.token("none", iat=time.time(), **GOOD),
    "alg none with a signature": changed(lambda token: with_header(token, alg="none")),
    "alg None in another case": changed(lambda token: with_header(token, alg="nOnE")),
    "no alg": changed(lambda token: with_header(token, alg=None)),
    "an unknown alg": changed(lambda token: with_header(token, alg="XS256")),
    "HS256 with the public key as secret": lambda signer: by_shared_key(
        signer.token(iat=time.time(), **GOOD), b"RS256"
    ),
    "RS256 by a key of another kind": changed(lambda token: with_header(token, kid="ES256")),
    "an unknown kid": changed(lambda token: with_header(token, kid="of another server")),
    "an extension that must be understood": lambda signer: signer.token(
        header={"crit": ["exp"], "exp": 4_000_000_000}, iat=time.time(), **GOOD
    ),
    "an audience with ours as a part of it": claims(aud=f"other {AUDIENCE}"),
    "a changed header": changed(lambda token: with_header(token, typ="JWT")),
    "changed claims": changed(lambda token: with_claims(token, sub="admin")),
    "a truncated signature": changed(lambda token: token[:-8]),
    "the signature of ES256 in the form of DER": changed(lambda token: f"{token[:-4]}AAAA", "ES256"),
    "an ES256 signature of zeros": changed(lambda token: f"{token.rpartition('.')[0]}.{text(bytes(64))}", "ES256"),
    "no signature": changed(lambda token: f"{token.rpartition('.')[0]}."),
    "two parts": changed(lambda token: token.rpartition(".")[0]),
    "four parts": changed(lambda token: f"{token}.AAAA"),
    "no JSON": lambda _: f"{text(b'x')}.{text(b'y')}.{text(b'z')}",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_token_that_apache_kafka_accepts_is_accepted(peers: Peers, name: str) -> None:
    token = ACCEPTED[name](peers.signer)
    assert answers(peers.kafka, token) == [(ErrorCode.none, b"")]
    assert answers(peers.ours, token) == [(ErrorCode.none, b"")]


@pytest.mark.parametrize("name", REFUSALS)
def test_a_token_that_apache_kafka_refuses_is_refused_with_the_same_answers(peers: Peers, name: str) -> None:
    token = REFUSALS[name](peers.signer)
    theirs = answers(peers.kafka, token)
    assert theirs == [(ErrorCode.none, REFUSED), (ErrorCode.sasl_authentication_failed, b"")]
    assert answers(peers.ours, token) == theirs
