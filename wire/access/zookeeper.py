"""Options by which a process shows itself to ZooKeeper: `zookeeper.sasl.*`, `zookeeper.set.acl`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import Field, SecretStr

from runtime.configuration import ConfigurationError, Settings, load_settings
from runtime.zookeeper_access import ZooKeeperAccess, access_zookeeper_as

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


ZOOKEEPER_KEYS: Final = frozenset(str(field.alias) for field in ZooKeeperSettings.model_fields.values())


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
    if not settings.username:
        return None
    return ZooKeeperAccess(username=settings.username, password=password, sets_acls=settings.sets_acls)


def protect_zookeeper(properties: Mapping[str, object]) -> None:
    """Have this process's sessions begin as its properties ask. ConfigurationError."""
    access_zookeeper_as(zookeeper_access(properties))
