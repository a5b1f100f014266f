"""A client's security settings by Kafka's own option names: TLS, SASL with PLAIN or SCRAM.

`ClientSecurity` is read from properties; it gives the `ssl.SSLContext` (`wire/tls` has its options
and reads the key stores) and the handshake that `wire/client/connection.py` asks for. As in Kafka,
options of TLS do nothing where `security.protocol` asks for none. What a broker refuses is
`Unreachable` and tried again like any connection: passwords are changed while daemons run.
"""

import enum
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kio.schema.errors import ErrorCode
from pydantic import Field, SecretStr, field_validator

from runtime.configuration import ConfigurationError, load_settings
from wire.client.client_errors import Unreachable, error_code
from wire.client.connection import Connection, ConnectionOptions, Handshake
from wire.client.scram import ScramClient, ScramRefused
from wire.rules.jaas import parse_jaas
from wire.rules.scram import HASHES
from wire.tls.settings import HIDDEN, TLS_SECRETS, TlsSettings

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_SECRET_KEYS: Final = ("sasl.jaas.config", *TLS_SECRETS)
_VERSION: Final = 1
"""The version of SaslHandshake and SaslAuthenticate, in use since Kafka 2.2: versions cannot be
negotiated yet.
"""
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *HASHES)
NONCE_BYTES: Final = 24

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


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
        description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    )
    login: SecretStr | None = Field(
        default=None,
        alias="sasl.jaas.config",
        description='a PlainLoginModule or ScramLoginModule line with username="..." and password="..."',
    )

    @field_validator("protocol", mode="before")
    @classmethod
    def _upper_case(cls, value: object) -> object:
        return value.strip().upper() if isinstance(value, str) else value

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

    def handshake(self) -> Handshake | None:
        """The SASL handshake; None without SASL."""
        if not self.is_sasl or self.login is None:
            return None
        line = self.login.get_secret_value()
        username, password = parse_login(line)
        is_by_token = _is_by_token(line)
        mechanism = self.mechanism

        async def log_in(connection: Connection) -> None:
            await _handshake(connection, mechanism)
            if mechanism == PLAIN:
                await _authenticate(connection, f"\0{username}\0{password}".encode())
                return
            scram = ScramClient(
                mechanism,
                username=username,
                password=password,
                nonce=secrets.token_urlsafe(NONCE_BYTES),
                is_by_token=is_by_token,
            )
            try:
                final = scram.final(await _authenticate(connection, scram.first()))
                scram.verify(await _authenticate(connection, final))
            except ScramRefused as error:
                raise Unreachable(f"login refused: {error}", node=str(connection.address)) from error

        return log_in


SECURITY_KEYS: Final = tuple(str(field.alias) for field in ClientSecurity.model_fields.values())
"""The names of the options."""


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
    security.ssl_context()
    return security


def _check_login(security: ClientSecurity) -> None:
    if not security.mechanism:
        accepted = f"{security.protocol.value} needs one of {', '.join(MECHANISMS)}"
        raise ConfigurationError("sasl.mechanism", "(not set)", accepted)
    try:
        parse_login("" if security.login is None else security.login.get_secret_value())
    except ValueError as error:
        raise ConfigurationError("sasl.jaas.config", HIDDEN, str(error)) from None


def parse_login(line: str) -> tuple[str, str]:
    """User name and password of a `sasl.jaas.config`. ValueError does not repeat what is secret."""
    found = parse_jaas(line)
    if found is None or found.name not in _LOGIN_MODULES:
        raise ValueError(f"accepted are {' and '.join(_LOGIN_MODULES)}, required, with options")
    options = found.options
    if not options.get("username") or "password" not in options:
        raise ValueError('username="..." and password="..." are missing')
    return options["username"], options["password"]


def _is_by_token(line: str) -> bool:
    found = parse_jaas(line)
    return found is not None and found.options.get("tokenauth", "").lower() == "true"


def secured(options: ConnectionOptions, security: ClientSecurity) -> ConnectionOptions:
    """The options with this security."""
    return replace(options, ssl_context=security.ssl_context(), handshake=security.handshake())


class _OfThisProcess:
    """The security of clients that are given none: that of a command's `--command-config`, or of a
    broker's listener between brokers.
    """

    security: ClientSecurity | None = None


def secure_clients(security: ClientSecurity) -> None:
    """Have every `KafkaClient` of this process use this, where it is given nothing else."""
    _OfThisProcess.security = security


def secured_by_default(options: ConnectionOptions) -> ConnectionOptions:
    """The options with the process's security, where they have none of their own."""
    security = _OfThisProcess.security
    if (
        security is None
        or not options.has_default_security
        or options.ssl_context is not None
        or options.handshake is not None
    ):
        return options
    return secured(options, security)


async def _handshake(connection: Connection, mechanism: str) -> None:
    answer = await connection.call(SASL_HANDSHAKE, {"mechanism": mechanism}, version=_VERSION)
    code = error_code(answer.error_code)
    if code is not ErrorCode.none:
        offered = ", ".join(answer.mechanisms) or "nothing"
        detail = f"{code.name}: the broker offers {offered}, not {mechanism}"
        raise Unreachable(detail, node=str(connection.address), api_key=SASL_HANDSHAKE)


async def _authenticate(connection: Connection, message: bytes) -> bytes:
    answer = await connection.call(SASL_AUTHENTICATE, {"auth_bytes": message}, version=_VERSION)
    code = error_code(answer.error_code)
    if code is not ErrorCode.none:
        detail = f"login refused: {answer.error_message or code.name}"
        raise Unreachable(detail, node=str(connection.address), api_key=SASL_AUTHENTICATE)
    return bytes(answer.auth_bytes)
