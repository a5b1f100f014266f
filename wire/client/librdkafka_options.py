"""Kafka's client options as librdkafka has them, for commands that use its clients: the same file
serves both.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from runtime.configuration import ConfigurationError
from wire.client.logins import OAUTHBEARER
from wire.client.security import ClientSecurity
from wire.tls.core.reading import Format
from wire.tls.settings import HIDDEN

_A_PASSWORD: Final = "a user and its password: this command uses librdkafka, which has no delegation tokens"  # noqa: S105
_PEM_ONLY: Final = "a file in PEM, or ssl.keystore.key and ssl.keystore.certificate.chain: this command uses librdkafka"


def librdkafka_options(security: ClientSecurity) -> dict[str, Any]:
    """The options. ConfigurationError for a key store that librdkafka cannot be given."""
    options: dict[str, Any] = {"security.protocol": security.protocol.value.lower()}
    if security.is_sasl and security.mechanism == OAUTHBEARER:
        options |= {"sasl.mechanism": OAUTHBEARER, "oauth_cb": partial(_token, security)}
    elif security.is_sasl:
        user = security.user()
        if user.is_by_token:
            raise ConfigurationError("sasl.jaas.config", HIDDEN, _A_PASSWORD)
        options |= {"sasl.mechanism": security.mechanism, "sasl.username": user.name, "sasl.password": user.password}
    if security.is_tls:
        options |= _tls_options(security)
    return options


def _token(security: ClientSecurity, _: str) -> tuple[str, float]:
    """The token and when it expires (Unix s), for librdkafka's `oauth_cb`. Raises NoToken."""
    found = security.bearer_tokens.current()
    return found.text, found.expires_at_ms / 1000


def _tls_options(security: ClientSecurity) -> dict[str, str]:
    options = {"ssl.endpoint.identification.algorithm": security.endpoint_identification or "none"}
    trusted = security.trusted_pem()
    if trusted is not None:
        options["ssl.ca.pem"] = trusted
    if security.keystore_key is not None and security.keystore_certificate_chain is not None:
        options["ssl.key.pem"] = security.keystore_key.get_secret_value()
        options["ssl.certificate.pem"] = security.keystore_certificate_chain
    elif security.keystore is not None:
        path = str(security.keystore)
        if security.keystore_type is Format.PEM or security.keystore.read_bytes().lstrip().startswith(b"-----"):
            options |= {"ssl.key.location": path, "ssl.certificate.location": path}
        elif security.keystore_type is not Format.JKS and security.keystore_password is not None:
            options["ssl.keystore.location"] = path
            options["ssl.keystore.password"] = security.keystore_password.get_secret_value()
        else:
            raise ConfigurationError("ssl.keystore.location", HIDDEN, _PEM_ONLY)
    if security.key_password is not None:
        options["ssl.key.password"] = security.key_password.get_secret_value()
    return options
