"""Options of a process's sessions at ZooKeeper: `zookeeper.sasl.*`, `zookeeper.set.acl`,
`zookeeper.ssl.*`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from pydantic import Field, SecretStr

from runtime.configuration import ConfigurationError, Settings, load_settings
from runtime.zookeeper.access import ZooKeeperAccess, access_zookeeper_as
from wire.tls.settings import HIDDEN, TLS_SECRETS, TlsSettings

_USERNAME, _PASSWORD, _SET_ACL = "zookeeper.sasl.username", "zookeeper.sasl.password", "zookeeper.set.acl"


class ZooKeeperSettings(Settings):
    """The identity of this process at ZooKeeper."""

    username: str = Field(
        default="",
        alias="zookeeper.sasl.username",
        pattern=r"^[^\s\"\\]*$",
        description="a user of ZooKeeper's servers",
    )
    password: SecretStr = Field(
        default=SecretStr(""), alias="zookeeper.sasl.password", description="that user's password"
    )
    sets_acls: bool = Field(default=False, alias="zookeeper.set.acl", description="true or false")
    is_encrypted: bool = Field(default=False, alias="zookeeper.ssl.client.enable", description="true or false")


_PREFIX: Final = "zookeeper."
_ENABLE: Final = "zookeeper.ssl.client.enable"
_ENDPOINT: Final = "zookeeper.ssl.endpoint.identification.algorithm"
TLS_KEYS: Final = frozenset(
    _PREFIX + str(field.alias)
    for field in TlsSettings.model_fields.values()
    if str(field.alias).rpartition(".")[2] in ("location", "password", "type") or "endpoint" in str(field.alias)
)
"""Kafka's options of TLS to ZooKeeper: those of a client's TLS after the prefix."""
ZOOKEEPER_KEYS: Final = (
    frozenset(str(field.alias) for field in ZooKeeperSettings.model_fields.values()) | TLS_KEYS | {_ENABLE}
)


def zookeeper_access(properties: Mapping[str, object]) -> ZooKeeperAccess | None:
    """The identity that the properties ask for; None: none. ConfigurationError."""
    settings = load_settings(ZooKeeperSettings, properties)
    password = settings.password.get_secret_value()
    if bool(settings.username) is not bool(password):
        missing = _PASSWORD if settings.username else _USERNAME
        raise ConfigurationError(missing, "(not set)", f"both, or neither, of {_USERNAME} and {_PASSWORD}")
    if settings.sets_acls and not settings.username:
        accepted = f"false, or {_USERNAME} and {_PASSWORD} besides: an ACL needs a user who may do everything"
        raise ConfigurationError(_SET_ACL, "true", accepted)
    tls = _context(properties) if settings.is_encrypted else None
    if not settings.username and tls is None:
        return None
    return ZooKeeperAccess(username=settings.username, password=password, sets_acls=settings.sets_acls, tls=tls)


def _context(properties: Mapping[str, object]) -> ssl.SSLContext:
    given = {key.removeprefix(_PREFIX): value for key, value in properties.items() if key in TLS_KEYS}
    algorithm = str(properties.get(_ENDPOINT, "https")).strip().lower()
    try:
        return load_settings(TlsSettings, {**given, _ENDPOINT.removeprefix(_PREFIX): algorithm}).tls_context()
    except ConfigurationError as error:
        value = HIDDEN if error.key in TLS_SECRETS else error.value
        raise ConfigurationError(_PREFIX + error.key, value, error.accepted) from None


def protect_zookeeper(properties: Mapping[str, object]) -> None:
    """Have this process's sessions begin as its properties ask. ConfigurationError."""
    access_zookeeper_as(zookeeper_access(properties))
