"""The options of the bridge's security: TLS of its listeners, logins of HTTP clients, the Kafka
users that act for them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bridge.access.passwords import USERS_KEY
from bridge.config import BridgeSettings, checked_options
from bridge.core.impersonation import ImpersonationRule, InvalidRule, read_rules
from bridge.core.password_file import ACCEPTED, read_passwords
from runtime.config_providers import looked_up
from runtime.configuration import ConfigurationError, load_settings, read_properties
from wire.identity.core.principal_mapping_rules import PrincipalRules
from wire.identity.token_checks import TOKEN_KEYS, TokenKeys, read_token_check
from wire.tls.server_settings import ClientAuth, ServerTlsSettings
from wire.tls.settings import HIDDEN, TLS_SECRETS

METHODS_KEY: Final = "authentication.method"
REALM_KEY: Final = "authentication.realm"
RULES_FILE_KEY: Final = "antipode.impersonation.rules.location"
PRINCIPAL_RULES_KEY: Final = "ssl.principal.mapping.rules"
PLAINTEXT_KEY: Final = "antipode.allow.plaintext"
TLS_KEYS: Final = frozenset(str(field.alias) for field in ServerTlsSettings.model_fields.values())
SECURITY_KEYS: Final = frozenset(
    (*TLS_KEYS, *TOKEN_KEYS, METHODS_KEY, REALM_KEY, RULES_FILE_KEY, PRINCIPAL_RULES_KEY, PLAINTEXT_KEY, USERS_KEY)
)
_OLD_CLIENT_AUTH: Final = {"true": "required", "false": "none"}


class Method(enum.Enum):
    """A way in which an HTTP client shows who it is."""

    BASIC = "BASIC"
    BEARER = "BEARER"
    SSL = "SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSecurity:
    """The security settings of a bridge's file; `tls` is None for plaintext listeners."""

    tls: ServerTlsSettings | None
    methods: frozenset[Method]
    realm: str
    users: Path | None
    rules_file: Path | None
    principal_rules: PrincipalRules
    properties: Mapping[str, str]

    @property
    def is_open(self) -> bool:
        """True if clients do not log in."""
        return not self.methods


def load_bridge_security(properties: Mapping[str, str], settings: BridgeSettings) -> BridgeSecurity:
    """The options; every file that they name is read once. ConfigurationError, which repeats
    nothing secret.
    """
    tls = _tls(properties, is_encrypted=settings.is_encrypted)
    methods = _methods(properties.get(METHODS_KEY, ""))
    try:
        principal_rules = PrincipalRules(properties.get(PRINCIPAL_RULES_KEY, ""))
    except ValueError as error:
        raise ConfigurationError(PRINCIPAL_RULES_KEY, properties[PRINCIPAL_RULES_KEY], str(error)) from error
    security = BridgeSecurity(
        tls=tls,
        methods=methods,
        realm=properties.get(REALM_KEY, "").strip() or "antipode",
        users=_path(properties, USERS_KEY),
        rules_file=_path(properties, RULES_FILE_KEY),
        principal_rules=principal_rules,
        properties=properties,
    )
    _check(security, settings)
    return security


def _check(security: BridgeSecurity, settings: BridgeSettings) -> None:
    """Check that the settings can be honoured, and that secrets do not cross the network in
    plaintext.
    """
    methods = security.methods
    is_allowed = security.properties.get(PLAINTEXT_KEY, "").strip().lower() == "true"
    if methods and security.tls is None and not is_allowed:
        accepted = f"https://... since clients send passwords or tokens, or {PLAINTEXT_KEY}=true"
        raise ConfigurationError("listeners", ",".join(f"http://{one}" for one in settings.listeners), accepted)
    if Method.BASIC in methods:
        if security.users is None:
            raise ConfigurationError(USERS_KEY, "(not set)", f"a file of {ACCEPTED}")
        _readable(USERS_KEY, security.users, lambda path: read_passwords(path.read_text(encoding="utf-8")), ACCEPTED)
    if Method.BEARER in methods:
        read_token_check(security.properties.get, TokenKeys())
    if Method.SSL in methods and (security.tls is None or security.tls.client_auth is ClientAuth.NONE):
        raise ConfigurationError("ssl.client.auth", "none", f"requested or required, for {METHODS_KEY}=SSL")
    if security.rules_file is not None:
        if security.is_open:
            accepted = "BASIC, BEARER, SSL or several of them: the login methods to which a rule applies"
            raise ConfigurationError(METHODS_KEY, "NONE", accepted)
        _readable(RULES_FILE_KEY, security.rules_file, partial(read_rules_file, settings), "a file of rules")
    if security.tls is not None:
        security.tls.server_context()


def read_rules_file(settings: BridgeSettings, path: Path) -> tuple[ImpersonationRule, ...]:
    """The rules; librdkafka has accepted their options. ConfigurationError, OSError."""
    path.read_bytes()  # a file that cannot be read is reported by the key that names it
    try:
        rules = read_rules(looked_up(read_properties(path)))
    except InvalidRule as error:
        raise ConfigurationError(error.key, error.value, error.accepted) from error
    known: set[tuple[str, ...]] = set()
    for rule in rules:
        with_its_own = settings.with_options(dict(rule.options))
        checked_options(with_its_own, prefix=f"impersonation.{rule.name}.", known=known)
    return rules


def _readable(key: str, path: Path, read: object, accepted: str) -> None:
    assert callable(read)
    try:
        read(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(key, str(path), f"{accepted} ({error})") from error


def _tls(properties: Mapping[str, str], *, is_encrypted: bool) -> ServerTlsSettings | None:
    given = {key: value for key, value in properties.items() if key in TLS_KEYS and value.strip()}
    old = properties.get("ssl.client.authentication", "").strip()
    if old:
        given.setdefault("ssl.client.auth", old)
    if "ssl.client.auth" in given:
        wanted = given["ssl.client.auth"].strip().lower()
        given["ssl.client.auth"] = _OLD_CLIENT_AUTH.get(wanted, wanted)
    if not is_encrypted:
        if given and given != {"ssl.client.auth": "none"}:
            key = next(iter(given))
            raise ConfigurationError("listeners", "http://...", f"https://host:port, since {key} is set")
        return None
    try:
        return load_settings(ServerTlsSettings, given)
    except ConfigurationError as error:
        value = HIDDEN if error.key in TLS_SECRETS else error.value
        raise ConfigurationError(error.key, value, error.accepted) from None


def _methods(text: str) -> frozenset[Method]:
    names = {name.strip().upper() for name in text.split(",") if name.strip()} - {"NONE"}
    known = {method.value for method in Method}
    if names - known:
        raise ConfigurationError(METHODS_KEY, text, "NONE, or one or more of BASIC, BEARER, SSL with commas")
    return frozenset(Method(name) for name in names)


def _path(properties: Mapping[str, str], key: str) -> Path | None:
    text = properties.get(key, "").strip()
    return Path(text) if text else None
