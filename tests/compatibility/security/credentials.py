"""A client's credentials, in the options of each client library."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Mechanism(StrEnum):
    """A kind of login, always over TLS."""

    PLAIN = "PLAIN"
    SCRAM_256 = "SCRAM-SHA-256"
    SCRAM_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    CERTIFICATE = "certificate"


_JAVA_MODULES = {
    Mechanism.PLAIN: "plain.PlainLoginModule",
    Mechanism.SCRAM_256: "scram.ScramLoginModule",
    Mechanism.SCRAM_512: "scram.ScramLoginModule",
    Mechanism.OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule",
}
_CALLBACKS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A login, right or wrong: name and password, a file with a token, or a file with a key and its
    certificate. `authority` is trusted.
    """

    mechanism: Mechanism
    authority: Path
    user: str = ""
    password: str = ""
    token: Path | None = None
    identity: Path | None = None

    @property
    def is_sasl(self) -> bool:
        """Whether the login is one of SASL."""
        return self.mechanism is not Mechanism.CERTIFICATE

    @property
    def protocol(self) -> str:
        """Kafka's name of the listener's protocol."""
        return "SASL_SSL" if self.is_sasl else "SSL"

    def token_text(self) -> str:
        """The token itself; empty without one."""
        return "" if self.token is None else self.token.read_text()

    def as_json(self) -> str:
        """The credentials as JSON, for the programs in Go and Node."""
        return json.dumps(
            {
                "ca": str(self.authority),
                "identity": "" if self.identity is None else str(self.identity),
                "mechanism": self.mechanism.value if self.is_sasl else "",
                "user": self.user,
                "password": self.password,
                "token": self.token_text(),
            }
        )

    def librdkafka(self) -> dict[str, Any]:
        """Without the callback that gives a token."""
        found = {"security.protocol": self.protocol.lower(), "ssl.ca.location": str(self.authority)}
        if self.identity is not None:
            found |= {"ssl.certificate.location": str(self.identity), "ssl.key.location": str(self.identity)}
        if self.is_sasl:
            found["sasl.mechanism"] = self.mechanism.value
        if self.user:
            found |= {"sasl.username": self.user, "sasl.password": self.password}
        return found

    def java(self) -> dict[str, str]:
        """A file of client properties."""
        found = {
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        if self.identity is not None:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.identity)}
        if self.is_sasl:
            login = f' username="{self.user}" password="{self.password}"' if self.user else ""
            module = f"org.apache.kafka.common.security.{_JAVA_MODULES[self.mechanism]}"
            found |= {"sasl.mechanism": self.mechanism.value, "sasl.jaas.config": f"{module} required{login};"}
        if self.token is not None:
            found |= {
                "sasl.login.callback.handler.class": _CALLBACKS,
                "sasl.oauthbearer.token.endpoint.url": self.token.as_uri(),
            }
        return found

    def java_options(self) -> str:
        """Options of the Java virtual machine: since Apache Kafka 4.0 they name the token files
        that a client may read.
        """
        if self.token is None:
            return ""
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return f"{allowed}.urls={self.token.as_uri()} {allowed}.files={self.token}"

    def context(self) -> ssl.SSLContext:
        """The TLS context for the clients in Python."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.identity is not None:
            context.load_cert_chain(self.identity)
        return context

    def python(self) -> dict[str, Any]:
        """Arguments that aiokafka and kafka-python have in common, without the provider of
        tokens.
        """
        found: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.context()}
        if self.is_sasl:
            found["sasl_mechanism"] = self.mechanism.value
        if self.user:
            found |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return found
