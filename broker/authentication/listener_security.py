"""The security of each listener under Kafka's names: its protocol, its certificates, its
mechanisms.

A property with the listener's prefix, `listener.name.{name}.ssl.keystore.location`, applies to this
listener alone and overrides the one without a prefix; the name is in lower case. Files are read
when a broker starts, so that a wrong file is an error at the start (`broker/settings/config.py`),
and again when its configs change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from broker.authentication.sasl_offers import (
    ENABLED,
    INTER_BROKER_MECHANISM,
    JAAS,
    SESSION_MS,
    ScramUsers,
    read_sasl_offer,
)
from runtime.configuration import ConfigurationError, load_settings
from wire.client.security import SecurityProtocol
from wire.identity.core.failed_logins import DELAY_MS_KEY
from wire.identity.core.principal_mapping_rules import PrincipalRules
from wire.identity.token_checks import TOKEN_KEYS, TokenKeys
from wire.tls.server_settings import ServerTlsSettings
from wire.tls.settings import HIDDEN, TLS_SECRETS

PROTOCOL_MAP: Final = "listener.security.protocol.map"
PROTOCOLS: Final = tuple(protocol.value for protocol in SecurityProtocol)
MAPPING_RULES: Final = "ssl.principal.mapping.rules"
FAMILIES: Final = ("ssl.", "sasl.", "antipode.sasl.", SESSION_MS, DELAY_MS_KEY)
_PREFIX: Final = "listener.name."


class ListenerSecurity(Struct, frozen=True, kw_only=True):
    """The security settings of one listener."""

    name: str
    protocol: SecurityProtocol
    properties: Mapping[str, str]
    """The listener's properties that concern security, without the listener's prefix."""
    tls: ServerTlsSettings | None
    rules: PrincipalRules

    @property
    def is_sasl(self) -> bool:
        """True if clients of the listener log in."""
        return self.protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


SECURITY_KEYS: Final = frozenset(
    {
        MAPPING_RULES,
        ENABLED,
        JAAS,
        SESSION_MS,
        DELAY_MS_KEY,
        INTER_BROKER_MECHANISM,
        *TOKEN_KEYS,
        *(str(field.alias) for field in ServerTlsSettings.model_fields.values()),
    }
)


def is_security_key(key: str) -> bool:
    """True if this module reads the property: for all listeners, for one, or for one mechanism at
    one.
    """
    own = key.split(".", 3)[3] if key.startswith(_PREFIX) and key.count(".") > 2 else key
    return own in SECURITY_KEYS or (own != key and own.partition(".")[2] in SECURITY_KEYS)


def listener_prefix(name: str) -> str:
    """The prefix of a listener's own properties."""
    return f"{_PREFIX}{name.lower()}."


def read_listener_security(properties: Mapping[str, str], protocols: Mapping[str, str]) -> dict[str, ListenerSecurity]:
    """The security of each listener by name, from its protocol. Raises ConfigurationError, which
    names the property as it is written, and nothing secret.
    """
    return {name: _read(properties, name, SecurityProtocol(protocol)) for name, protocol in protocols.items()}


def security_of(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """The security properties that apply to a listener, without its prefix."""
    prefix = listener_prefix(listener)
    found = {key: value for key, value in properties.items() if key.startswith(FAMILIES)}
    own = {key.removeprefix(prefix): value for key, value in properties.items() if key.lower().startswith(prefix)}
    return {**found, **own}


def protocols_of(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """The protocol of each listener: from the map, or from a listener name that is a protocol, as
    in Kafka. ConfigurationError.
    """
    found = {}
    for name in names:
        if given and name not in given and name not in PROTOCOLS:
            raise ConfigurationError(PROTOCOL_MAP, name, "the listener is missing from the map")
        protocol = given.get(name, name if name in PROTOCOLS else SecurityProtocol.PLAINTEXT.value)
        if protocol not in PROTOCOLS:
            raise ConfigurationError(PROTOCOL_MAP, f"{name}:{protocol}", f"accepted: {', '.join(PROTOCOLS)}")
        found[name] = protocol
    return found


def _read(properties: Mapping[str, str], name: str, protocol: SecurityProtocol) -> ListenerSecurity:
    found = security_of(properties, name)
    try:
        security = ListenerSecurity(
            name=name,
            protocol=protocol,
            properties=found,
            tls=_tls(found) if protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL) else None,
            rules=_rules(found.get(MAPPING_RULES, "")),
        )
        if security.is_sasl:
            read_sasl_offer(found, ScramUsers(), TokenKeys())
    except ConfigurationError as error:
        raise _as_written(error, properties, name) from error
    return security


def _tls(properties: Mapping[str, str]) -> ServerTlsSettings:
    settings = load_settings(ServerTlsSettings, properties)
    settings.server_context()
    return settings


def _rules(text: str) -> PrincipalRules:
    try:
        return PrincipalRules(text)
    except ValueError as error:
        raise ConfigurationError(MAPPING_RULES, text, str(error)) from error


def _as_written(error: ConfigurationError, properties: Mapping[str, str], listener: str) -> ConfigurationError:
    """The same error with the key that the file has; the listener's own key if the file has
    neither.
    """
    own = listener_prefix(listener) + error.key
    key = error.key if error.key in properties and own not in properties else own
    return ConfigurationError(key, HIDDEN if error.key in TLS_SECRETS else error.value, error.accepted)
