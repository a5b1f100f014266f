"""Options of the control plane's security, under `antipode.control.`: TLS with Kafka's option
names, tokens, and roles of certificates.

Daemons read them from their properties file, commands from `--command-config`. A process without
TLS on its control plane does not start unless `antipode.allow.plaintext=true`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import re2
from pydantic import Field, SecretStr, field_validator

from runtime.configuration import ConfigurationError, load_settings
from wire.access.core.callers import SubjectRule
from wire.access.core.roles import Role
from wire.tls.settings import HIDDEN, TLS_SECRETS, TlsSettings

PREFIX: Final = "antipode.control."
ALLOW_PLAINTEXT: Final = "antipode.allow.plaintext"
HOW_TO: Final = "`antipode credentials` makes an authority, certificates and tokens (docs/security.md)"
REQUIRED: Final = "required"


class ControlSettings(TlsSettings):
    """Security of the control plane, as a server and as a client; keys are without
    `antipode.control.`.
    """

    client_auth: str = Field(
        default=REQUIRED,
        alias="ssl.client.auth",
        pattern="^(required|none)$",
        description="required demands a certificate of each caller; none leaves callers to their tokens",
    )
    tokens: Path | None = Field(
        default=None,
        alias="tokens.location",
        description="a file of lines NAME ROLE sha256:HEX: callers with such a token have that role",
    )
    token: SecretStr | None = Field(
        default=None, alias="token", description="the token that this process shows as a client"
    )
    broker_subjects: str = Field(default="", alias="role.broker.subjects", description="a regular expression")
    mirror_subjects: str = Field(default="", alias="role.mirror.subjects", description="a regular expression")
    operator_subjects: str = Field(default="", alias="role.operator.subjects", description="a regular expression")
    viewer_subjects: str = Field(default="", alias="role.viewer.subjects", description="a regular expression")
    may_be_plaintext: bool = Field(default=False, alias=ALLOW_PLAINTEXT, description="true or false")

    @field_validator("tokens", "token", mode="before")
    @classmethod
    def _nothing(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("broker_subjects", "mirror_subjects", "operator_subjects", "viewer_subjects")
    @classmethod
    def _expression(cls, value: str) -> str:
        try:
            re2.compile(value)
        except re2.error as error:
            raise ValueError(f"it is not a regular expression ({error})") from error
        return value

    @property
    def is_tls(self) -> bool:
        """True if the control plane is encrypted."""
        return self._has_trust or self._has_key

    @property
    def _has_trust(self) -> bool:
        return self.truststore is not None or self.truststore_certificates is not None

    @property
    def _has_key(self) -> bool:
        return self.keystore is not None or self.keystore_key is not None

    @property
    def is_certificate_required(self) -> bool:
        """True if callers must show a certificate."""
        return self.client_auth == REQUIRED

    @property
    def subject_rules(self) -> tuple[SubjectRule, ...]:
        """The rules of subjects, the role with the fewest rights first: if two rules match, the
        weaker role applies.
        """
        patterns = (
            (Role.VIEWER, self.viewer_subjects),
            (Role.MIRROR, self.mirror_subjects),
            (Role.OPERATOR, self.operator_subjects),
            (Role.BROKER, self.broker_subjects),
        )
        return tuple(SubjectRule(role, pattern) for role, pattern in patterns if pattern)


CONTROL_KEYS: Final = frozenset(
    alias if alias == ALLOW_PLAINTEXT else PREFIX + alias
    for alias in (str(field.alias) for field in ControlSettings.model_fields.values())
)
"""The names of the options in a file."""
_SECRETS: Final = frozenset({"token", *TLS_SECRETS})


def load_control_settings(properties: Mapping[str, object]) -> ControlSettings:
    """The options out of a file's properties. ConfigurationError repeats nothing secret."""
    given = {
        key if key == ALLOW_PLAINTEXT else key.removeprefix(PREFIX): value
        for key, value in properties.items()
        if key in CONTROL_KEYS
    }
    misspelt = sorted(key for key in properties if key.startswith(PREFIX) and key not in CONTROL_KEYS)
    if misspelt:
        raise ConfigurationError(misspelt[0], HIDDEN, f"no such option; accepted: {', '.join(sorted(CONTROL_KEYS))}")
    with_names = _Renamed()
    with with_names:
        settings = load_settings(ControlSettings, given)
        _check_whole(settings)
    return settings


def check_server(settings: ControlSettings) -> None:
    """ConfigurationError for what a process with a control listener lacks."""
    if not settings.is_tls:
        return
    with _Renamed():
        if not settings._has_key:
            accepted = f"a file of this process's key and certificates; {HOW_TO}"
            raise ConfigurationError("ssl.keystore.location", "(not set)", accepted)
        if not settings.is_certificate_required and settings.tokens is None:
            accepted = (
                "required, or antipode.control.tokens.location besides: callers have no other way to say who they are"
            )
            raise ConfigurationError("ssl.client.auth", settings.client_auth, accepted)


def check_plaintext_allowed(settings: ControlSettings) -> None:
    """ConfigurationError for a control plane in plaintext that the file does not allow."""
    if not settings.is_tls and not settings.may_be_plaintext:
        accepted = (
            "antipode.control.ssl.keystore.location and antipode.control.ssl.truststore.location, for mutual TLS with "
            f"brokers, mirrors and operators ({HOW_TO}); or {ALLOW_PLAINTEXT}=true, on a network that only friends reach"
        )
        raise ConfigurationError(f"{PREFIX}ssl.keystore.location", "(not set)", accepted)


def _check_whole(settings: ControlSettings) -> None:
    if settings.is_tls and not settings._has_trust:
        accepted = f"a file of the authorities whose certificates are trusted; {HOW_TO}"
        raise ConfigurationError("ssl.truststore.location", "(not set)", accepted)
    if settings.token is not None and not settings.is_tls:
        raise ConfigurationError(
            "token", HIDDEN, "none without TLS, which needs antipode.control.ssl.truststore.location"
        )
    if settings.token is not None and not re.fullmatch(r"[!-~]+", settings.token.get_secret_value()):
        raise ConfigurationError("token", HIDDEN, "visible ASCII characters")
    if not settings.endpoint_identification:
        accepted = "https: the certificates of control listeners name their hosts"
        raise ConfigurationError("ssl.endpoint.identification.algorithm", "", accepted)


class _Renamed:
    """Errors in this block name the option as in the file, and contain no secret."""

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, ConfigurationError) or error.key.startswith((PREFIX, ALLOW_PLAINTEXT)):
            return
        value = HIDDEN if error.key in _SECRETS else error.value
        raise ConfigurationError(PREFIX + error.key, value, error.accepted) from None
