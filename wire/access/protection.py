"""Sets up the protection of a process from its properties; daemons and commands call this first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runtime.grpc_server import Protection, protect_control_plane
from runtime.logs import get_logger
from wire.access.guard import ControlGuard
from wire.access.metrics import metrics_certificates, protect_metrics
from wire.access.settings import (
    ALLOW_PLAINTEXT,
    ControlSettings,
    check_plaintext_allowed,
    check_server,
    load_control_settings,
)
from wire.access.zookeeper import protect_zookeeper, zookeeper_access

if TYPE_CHECKING:
    from wire.access.credentials import Credentials

log = get_logger(__name__)


def check_daemon(properties: Mapping[str, object], *, is_listening: bool = True) -> ControlSettings:
    """The options of a daemon, with its files tried. ConfigurationError; plaintext must be asked
    for.
    """
    settings = load_control_settings(properties)
    check_plaintext_allowed(settings)
    if is_listening:
        check_server(settings)
    if settings.is_tls:
        _credentials(settings)
    zookeeper_access(properties)
    metrics_certificates(properties)
    return settings


def _credentials(settings: ControlSettings) -> Credentials:
    # imported here, because the library is large and plaintext does not need it
    from wire.access.credentials import Credentials

    return Credentials(settings)


def protect_daemon(properties: Mapping[str, object], *, is_listening: bool = True) -> None:
    """Have this process's server and channels protected as its properties ask.
    ConfigurationError.
    """
    settings = check_daemon(properties, is_listening=is_listening)
    protect_zookeeper(properties)
    protect_metrics(properties)
    if not settings.is_tls:
        log.warning(
            "the control plane is plaintext: every program that reaches it may do everything", setting=ALLOW_PLAINTEXT
        )
        protect_control_plane(Protection(interceptors=(ControlGuard(None),)))
        return
    credentials = _credentials(settings)
    guard = ControlGuard(credentials, settings.subject_rules)
    protect_control_plane(Protection(server=credentials.server, channel=credentials.channel, interceptors=(guard,)))


def protect_client(properties: Mapping[str, object]) -> None:
    """Have this process's channels protected, where the properties ask for it.
    ConfigurationError.
    """
    settings = load_control_settings(properties)
    protect_zookeeper(properties)
    if settings.is_tls:
        protect_control_plane(Protection(channel=_credentials(settings).channel))
