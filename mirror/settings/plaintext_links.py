"""Refuses a mirror whose link or control plane is in plaintext, unless its file asks for that.

A link crosses the network between two sites, which often belongs to others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirror.settings.config import MirrorConfig
from mirror.settings.values import LinkMode
from runtime.configuration import ConfigurationError
from wire.access.protection import check_daemon, protect_daemon
from wire.access.settings import ALLOW_PLAINTEXT, HOW_TO, load_control_settings


def check_protection(properties: Mapping[str, str], configs: Sequence[MirrorConfig]) -> None:
    """Raises ConfigurationError for plaintext that the file does not allow, and for files that
    cannot be used.
    """
    if _has_control_plane(configs):
        check_daemon(properties, is_listening=_is_listening(configs))
    if load_control_settings(properties).may_be_plaintext:
        return
    for config in configs:
        for end, security in (("source", config.source_security), ("target", config.target_security)):
            if not security.is_tls:
                accepted = (
                    f"SSL or SASL_SSL with {end}.ssl.truststore.location ({HOW_TO}); or {ALLOW_PLAINTEXT}=true, on a "
                    "network that only friends reach"
                )
                raise ConfigurationError(f"{end}.security.protocol", security.protocol.value, accepted)


def protect_mirror(properties: Mapping[str, str], configs: Sequence[MirrorConfig]) -> None:
    """Protect this process's control plane as its file asks. ConfigurationError."""
    if _has_control_plane(configs):
        protect_daemon(properties, is_listening=_is_listening(configs))


def _has_control_plane(configs: Sequence[MirrorConfig]) -> bool:
    """A translate link has none: it knows no site agents."""
    return _is_listening(configs) or any(config.link_mode is LinkMode.EXACT for config in configs)


def _is_listening(configs: Sequence[MirrorConfig]) -> bool:
    return any(config.grpc_listener is not None for config in configs)
