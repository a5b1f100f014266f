"""TLS of a listener by Kafka's option names: the same stores as a client's, and whether clients
show a certificate.

A context gives out no session tickets: a resumed session would skip the look at the client's
certificate, and each ticket costs memory and a write. Renegotiation, which TLS 1.3 has removed, is
off for TLS 1.2: a client could use it to keep the loop busy.
"""

from __future__ import annotations

import enum
import ssl
from typing import Final

from pydantic import Field, field_validator

from runtime.configuration import ConfigurationError
from wire.tls.core.versions import SUITES_ACCEPTED, TLS_1_2, TLS_1_3, VERSIONS_ACCEPTED, Offer, offer_of, parse_versions
from wire.tls.settings import TlsSettings

_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}


class ClientAuth(enum.Enum):
    """Whether clients show a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class ServerTlsSettings(TlsSettings):
    """The identity of a listener, and the clients' certificates that it accepts."""

    client_auth: ClientAuth = Field(
        default=ClientAuth.NONE,
        alias="ssl.client.auth",
        description="accepted: none, requested or required",
    )
    protocol: str = Field(default="", alias="ssl.protocol", description=f"accepted: {TLS_1_2} or {TLS_1_3}")
    enabled_protocols: str = Field(
        default=f"{TLS_1_2},{TLS_1_3}", alias="ssl.enabled.protocols", description=VERSIONS_ACCEPTED
    )
    cipher_suites: str = Field(default="", alias="ssl.cipher.suites", description=SUITES_ACCEPTED)

    @field_validator("client_auth", mode="before")
    @classmethod
    def _lower_case(cls, value: object) -> object:
        return value.strip().lower() or ClientAuth.NONE if isinstance(value, str) else value

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of TLS that the listener accepts, the oldest first. ConfigurationError."""
        return self._chosen().versions

    def server_context(self) -> ssl.SSLContext:
        """Reads the stores. ConfigurationError names the option, the file and what is accepted, and
        nothing secret.
        """
        if self.keystore is None and self.keystore_key is None:
            accepted = (
                "a key store with the listener's private key, or ssl.keystore.key and ssl.keystore.certificate.chain"
            )
            raise ConfigurationError("ssl.keystore.location", "(not set)", accepted)
        is_asking = self.client_auth is not ClientAuth.NONE
        if is_asking and self.truststore is None and self.truststore_certificates is None:
            accepted = f"a trust store, since ssl.client.auth={self.client_auth.value} lets in whom it trusts"
            raise ConfigurationError("ssl.truststore.location", "(not set)", accepted)
        context = self._trusting_context(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = _VERIFY[self.client_auth]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        self._offer(context)
        self._identify(context)
        return context

    def _offer(self, context: ssl.SSLContext) -> None:
        offer = self._chosen()
        context.minimum_version = _VERSIONS[offer.versions[0]]
        context.maximum_version = _VERSIONS[offer.versions[-1]]
        if offer.ciphers:
            try:
                context.set_ciphers(offer.ciphers)
            except ssl.SSLError as error:
                raise ConfigurationError("ssl.cipher.suites", self.cipher_suites, SUITES_ACCEPTED) from error

    def _chosen(self) -> Offer:
        try:
            versions = parse_versions(self.enabled_protocols)
        except ValueError as error:
            accepted = f"{error}; {VERSIONS_ACCEPTED}"
            raise ConfigurationError("ssl.enabled.protocols", self.enabled_protocols, accepted) from error
        highest = self.protocol.strip()
        if highest not in ("", "TLS"):
            try:
                (newest,) = parse_versions(highest)
            except ValueError as error:
                accepted = f"{error}; accepted: {TLS_1_2} or {TLS_1_3}"
                raise ConfigurationError("ssl.protocol", self.protocol, accepted) from error
            versions = tuple(version for version in versions if version <= newest)
        if not versions:
            accepted = f"{self.protocol} or a newer one, since ssl.enabled.protocols={self.enabled_protocols}"
            raise ConfigurationError("ssl.protocol", self.protocol, accepted)
        suites = [suite.strip() for suite in self.cipher_suites.split(",") if suite.strip()]
        try:
            return offer_of(versions, suites)
        except ValueError as error:
            accepted = f"{error}; {SUITES_ACCEPTED}"
            raise ConfigurationError("ssl.cipher.suites", self.cipher_suites, accepted) from error
