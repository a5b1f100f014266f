"""A client's security settings by Kafka's own option names: TLS, SASL with PLAIN, SCRAM or
OAUTHBEARER.

`ClientSecurity` is read from properties; it gives the `ssl.SSLContext` (`wire/tls` has its options
and reads the key stores) and the handshake that `wire/client/connection.py` asks for, whose
messages are in `wire/client/logins.py`. As in Kafka, options of TLS have no effect unless
`security.protocol` asks for TLS. A refused login is `Unreachable` and retried like any failed
connection, because operators change passwords while daemons run.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, SecretStr, field_validator

from runtime.configuration import ConfigurationError, load_settings
from wire.client.connection import ConnectionOptions
from wire.client.login_session import Handshake
from wire.client.logins import (
    EXTENSION,
    OAUTHBEARER,
    PLAIN,
    User,
    by_bearer_token,
    by_password,
    parse_login,
    parse_token_login,
    read_user,
)
from wire.rules.scram import HASHES
from wire.tls.settings import HIDDEN, TLS_SECRETS, TlsSettings

if TYPE_CHECKING:
    from wire.client.bearer_tokens import BearerTokens

LOGIN: Final = "sasl.jaas.config"
LOGIN_FILE: Final = "antipode.sasl.login.location"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  the name of an option
_SECRET_KEYS: Final = (LOGIN, CLIENT_SECRET, *TLS_SECRETS)
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)


class SecurityProtocol(enum.Enum):
    """The layer below the Kafka protocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class ClientSecurity(TlsSettings):
    """Security of the connections to one cluster."""

    protocol: SecurityProtocol = Field(
        default=SecurityProtocol.PLAINTEXT,
        alias="security.protocol",
        description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    )
    mechanism: str = Field(
        default="",
        alias="sasl.mechanism",
        pattern=f"^({'|'.join(MECHANISMS)})?$",
        description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    )
    login: SecretStr | None = Field(
        default=None,
        alias=LOGIN,
        description='a PlainLoginModule or ScramLoginModule line with username="..." and password="..."',
    )
    login_file: Path | None = Field(
        default=None,
        alias=LOGIN_FILE,
        description="instead of sasl.jaas.config: a properties file with username, password and, for a delegation "
        "token, tokenauth=true; read at each login",
    )
    token_endpoint: str = Field(
        default="",
        alias="sasl.oauthbearer.token.endpoint.url",
        description="file:///path of a token, or https://host/path of an authorization server",
    )
    client_id: str = Field(
        default="",
        alias="sasl.oauthbearer.client.credentials.client.id",
        description="this client's id at the authorization server",
    )
    client_secret: SecretStr | None = Field(
        default=None, alias=CLIENT_SECRET, description="this client's secret at the authorization server"
    )
    scope: str = Field(default="", alias="sasl.oauthbearer.scope", description="the scope that tokens are asked for")
    login_handler: str = Field(
        default="",
        alias="sasl.login.callback.handler.class",
        pattern=r"^([\w.]*\bOAuthBearerLoginCallbackHandler)?$",
        description="OAuthBearerLoginCallbackHandler, or nothing",
    )

    @field_validator("protocol", mode="before")
    @classmethod
    def _upper_case(cls, value: object) -> object:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("login_file", mode="before")
    @classmethod
    def _no_file(cls, value: object) -> object:
        return None if value == "" else value

    @property
    def is_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """True if the client authenticates with SASL."""
        return self.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for TLS; None without TLS. Raises ConfigurationError when a file has
        unexpected content.
        """
        return self.tls_context() if self.is_tls else None

    def user(self) -> User:
        """The user to log in as, by a password or a delegation token. Raises ConfigurationError,
        OSError.
        """
        if self.login_file is not None:
            return read_user(self.login_file)
        try:
            return parse_login("" if self.login is None else self.login.get_secret_value())
        except ValueError as error:
            raise ConfigurationError(LOGIN, HIDDEN, str(error)) from None

    @cached_property
    def bearer_tokens(self) -> BearerTokens:
        """The tokens to log in by. Raises ConfigurationError."""
        from wire.client.bearer_tokens import BearerTokens, TokenRequest

        options = self._token_options()
        secret = self.client_secret.get_secret_value() if self.client_secret is not None else ""
        # `ssl.` options in the login line are those of the authorization server, not of the brokers
        of_server = {key: value for key, value in options.items() if key.startswith("ssl.")}
        return BearerTokens(
            TokenRequest(
                url=self.token_endpoint,
                client_id=self.client_id or options.get("clientId", ""),
                client_secret=secret or options.get("clientSecret", ""),
                scope=self.scope or options.get("scope", ""),
                trusted=load_settings(TlsSettings, of_server).tls_context() if of_server else None,
            )
        )

    def handshake(self) -> Handshake | None:
        """The SASL handshake; None without SASL. Raises ConfigurationError."""
        if not self.is_sasl:
            return None
        if self.mechanism != OAUTHBEARER:
            return by_password(self.mechanism, self.user)
        extensions = {
            name.removeprefix(EXTENSION): value
            for name, value in self._token_options().items()
            if name.startswith(EXTENSION)
        }
        return by_bearer_token(self.bearer_tokens, extensions)

    def _token_options(self) -> dict[str, str]:
        try:
            return {} if self.login is None else parse_token_login(self.login.get_secret_value())
        except ValueError as error:
            raise ConfigurationError(LOGIN, HIDDEN, str(error)) from None


SECURITY_KEYS: Final = tuple(str(field.alias) for field in ClientSecurity.model_fields.values())
"""The names of the options."""
LOGIN_KEYS: Final = tuple(
    key for key in SECURITY_KEYS if key.startswith(("sasl.", LOGIN_FILE)) and key != "sasl.mechanism"
)
"""The options of credentials, which depend on the mechanism."""


def load_security(mapping: Mapping[str, object]) -> ClientSecurity:
    """Read the options, and try their files. ConfigurationError repeats nothing secret."""
    try:
        security = load_settings(ClientSecurity, mapping)
    except ConfigurationError as error:
        if error.key in _SECRET_KEYS:
            raise ConfigurationError(error.key, HIDDEN, error.accepted) from None
        raise
    if security.is_sasl:
        _check_login(security)
    # opened once here, so that a wrong file ends the start and not the first connection
    security.ssl_context()
    return security


def _check_login(security: ClientSecurity) -> None:
    if not security.mechanism:
        accepted = f"{security.protocol.value} needs one of {', '.join(MECHANISMS)}"
        raise ConfigurationError("sasl.mechanism", "(not set)", accepted)
    if security.mechanism == OAUTHBEARER:
        security.handshake()
        return
    file = security.login_file
    if file is not None and security.login is not None:
        raise ConfigurationError(LOGIN_FILE, str(file), f"one of {LOGIN_FILE} and {LOGIN}")
    try:
        security.user()
    except OSError as error:
        raise ConfigurationError(LOGIN_FILE, str(file), f"a file that can be read ({error.strerror})") from None
    except ConfigurationError as error:
        if file is not None:
            raise ConfigurationError(LOGIN_FILE, str(file), f"{error.key}: {error.accepted}") from None
        raise


def secured(options: ConnectionOptions, security: ClientSecurity) -> ConnectionOptions:
    """The options with this security."""
    return replace(options, ssl_context=security.ssl_context(), handshake=security.handshake())


class _OfThisProcess:
    """The security of clients for which the code gives none: from a command's `--command-config`,
    or of a broker's inter-broker listener.
    """

    security: ClientSecurity | None = None


def secure_clients(security: ClientSecurity) -> None:
    """The security of each `KafkaClient` of this process for which the code gives none."""
    _OfThisProcess.security = security


def secured_by_default(options: ConnectionOptions) -> ConnectionOptions:
    """The options, with the process's security if they have none."""
    security = _OfThisProcess.security
    if security is None or options.ssl_context is not None or options.handshake is not None:
        return options
    return secured(options, security)
