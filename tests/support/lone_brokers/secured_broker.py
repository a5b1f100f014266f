"""A lone broker whose listeners are secured in different ways, with certificates that openssl makes
for it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.ports import LOOPBACK
from tests.support.processes.processes import Processes
from tests.support.processes.secured_kafka import PLAIN_MODULE, SCRAM_MODULE, Certificates, make_certificates

PROTOCOLS = {
    "CLIENT": "PLAINTEXT",
    "ENCRYPTED": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "SECURED": "SASL_SSL",
    "BRIEF": "SASL_PLAINTEXT",
    "TOKENS": "SASL_PLAINTEXT",
}
PASSWORDS = {"alice": "alice's, really", "bob": "bob's"}
"""Users of PLAIN."""
BROKER, BROKER_PASSWORD = "broker", "the broker's own"
"""Its user of SCRAM."""
BRIEF_SESSION_MS = 1500


def jaas(mechanism: str, user: str, password: str) -> str:
    """A client's login line."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return f'{module} required username="{user}" password="{password}";'


class SecuredBroker(LoneBroker):
    """CLIENT is plaintext, ENCRYPTED asks for no certificate, MUTUAL for one, at LOGIN and SECURED
    clients log in, at BRIEF for a short session, at
    TOKENS by a token.
    """

    def __init__(self, processes: Processes, directory: Path, **properties: str) -> None:
        self.certificates: Certificates = make_certificates(directory / "certificates")
        self.signer = TokenSigner(directory / "keys.json")
        given: dict[str, Any] = {
            "listeners": ",".join(f"{name}://{LOOPBACK}:0" for name in PROTOCOLS),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.brief.connections.max.reauth.ms": str(BRIEF_SESSION_MS),
            **self._lines(),
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            "listener.name.tokens.sasl.oauthbearer.expected.audience": "kafka",
            "listener.name.tokens.sasl.oauthbearer.sub.claim.name": "client",
            **properties,
        }
        super().__init__(processes, directory, **given)

    @staticmethod
    def _lines() -> dict[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        plain = f"{PLAIN_MODULE} required {users};"
        own = {name: jaas(name, BROKER, BROKER_PASSWORD) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")}
        return {
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": line
            for listener in ("login", "secured", "brief")
            for mechanism, line in {"PLAIN": plain, **own}.items()
        }

    def at(self, listener: str) -> str:
        """The address that clients of a listener connect to."""
        return f"{LOOPBACK}:{self.facts['ports'][listener]}"

    def java(self, *, is_known: bool) -> Mapping[str, str]:
        """Options of Java's clients; with a certificate where `is_known`."""
        found = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
        }
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificates.client)}
        return {**found, **own} if is_known else found

    def librdkafka(self, *, is_known: bool) -> Mapping[str, str]:
        """Options of librdkafka."""
        found = {"security.protocol": "ssl", "ssl.ca.location": str(self.certificates.authority)}
        own = str(self.certificates.client)
        return {**found, "ssl.certificate.location": own, "ssl.key.location": own} if is_known else found

    def context(self, *, is_known: bool) -> ssl.SSLContext:
        """The TLS context for Python's clients."""
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        if is_known:
            context.load_cert_chain(str(self.certificates.client))
        return context
