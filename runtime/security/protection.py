"""Refuses at start a properties file that asks for protection, in Kafka's terms, which the process
does not have.

A site, mirror or bridge that starts without the encryption, identities or access lists of its file
is less protected than its operator believes. So this is an error, not a warning. Keys with a value
that asks for no protection are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from runtime.configuration import ConfigurationError

_ZOOKEEPER: Final = "sessions at ZooKeeper have the stores, and no other options of TLS"

_SITE_FAMILIES: Final[Mapping[str, str]] = dict.fromkeys(
    (f"zookeeper.ssl.{name}" for name in ("protocol", "enabled.protocols", "cipher.suites", "crl.", "ocsp.")),
    _ZOOKEEPER,
)

_BRIDGE_HTTP: Final = "the bridge does not have it; towards brokers client.* keys count"
_BRIDGE_HAS: Final = re.compile(
    r"authentication\.(method|realm)|sasl\.server\.callback\.handler\.class"
    r"|sasl\.oauthbearer\.(jwks\.endpoint\.(url|refresh\.ms)|clock\.skew\.seconds|expected\.(audience|issuer)"
    r"|(sub|scope)\.claim\.name)"
    r"|ssl\.(client\.auth(entication)?|principal\.mapping\.rules|protocol|enabled\.protocols|cipher\.suites"
    r"|key\.password|(keystore|truststore)\.(location|type|password)|keystore\.(key|certificate\.chain)"
    r"|truststore\.certificates)"
)
"""The parts of the families below that a bridge has."""
_BRIDGE: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "csrf.prevention.enable": (frozenset({"false"}), f"false, or nothing: {_BRIDGE_HTTP}"),
    "security.protocol": (frozenset({"plaintext"}), f"PLAINTEXT, or nothing: {_BRIDGE_HTTP}"),
}
_BRIDGE_FAMILIES: Final[Mapping[str, str]] = {
    "ssl.": _BRIDGE_HTTP,
    "sasl.": _BRIDGE_HTTP,
    "authentication.": _BRIDGE_HTTP,
}

_LINK: Final = "the ends of a link have source.* and target.* of it"
_MIRROR: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "security.protocol": (frozenset({"plaintext"}), f"PLAINTEXT, or nothing: {_LINK}"),
}
_MIRROR_FAMILIES: Final[Mapping[str, str]] = {"ssl.": _LINK, "sasl.": _LINK}

_SECRET: Final = re.compile(r"password|secret|jaas|master\.key|keystore\.key")


def check_site_protection(properties: Mapping[str, str]) -> None:
    """ConfigurationError if the file of a broker or controller requires a protection that a site
    does not have.
    """
    for key in properties:
        _check(properties, key, key, {}, _SITE_FAMILIES)


def check_bridge_protection(properties: Mapping[str, str]) -> None:
    """ConfigurationError if a bridge's file requires a protection that the bridge does not have."""
    for key in properties:
        if _BRIDGE_HAS.fullmatch(key) is None:
            _check(properties, key, key, _BRIDGE, _BRIDGE_FAMILIES)


def check_mirror_protection(properties: Mapping[str, str]) -> None:
    """ConfigurationError if a mirror's own file requires a protection that the link lacks."""
    for key in properties:
        _check(properties, key, key, _MIRROR, _MIRROR_FAMILIES)


def _check(
    properties: Mapping[str, str],
    key: str,
    name: str,
    rules: Mapping[str, tuple[frozenset[str], str]],
    families: Mapping[str, str],
) -> None:
    value = properties[key].strip()
    harmless, accepted = rules.get(name, (frozenset(), ""))
    if not accepted:
        accepted = next((f"nothing: {why}" for family, why in families.items() if name.startswith(family)), "")
    if accepted and value and value.lower() not in harmless:
        shown = "(hidden)" if _SECRET.search(name) else value
        raise ConfigurationError(key, shown, f"accepted: {accepted}")
