"""TLS of a daemon's metrics page: the options `antipode.metrics.ssl.*`, which have Kafka's names
and meanings after that prefix.

Clients are let in by certificate where `antipode.metrics.ssl.client.auth=required` says so. Files
that are replaced count from the next connection on; one that cannot be used is logged, and the
former certificates count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from runtime.configuration import ConfigurationError, load_settings
from runtime.metrics import serve_metrics_by
from wire.tls.reloading import ListenerCertificates
from wire.tls.server_settings import ServerTlsSettings
from wire.tls.settings import HIDDEN, TLS_SECRETS

PREFIX: Final = "antipode.metrics."
METRICS_KEYS: Final = frozenset(PREFIX + str(field.alias) for field in ServerTlsSettings.model_fields.values())
"""The names of the options in a file."""


def protect_metrics(properties: Mapping[str, object]) -> None:
    """Have this process's metrics served as its properties ask. ConfigurationError."""
    certificates = metrics_certificates(properties)
    serve_metrics_by(None if certificates is None else certificates.context)


def metrics_certificates(properties: Mapping[str, object]) -> ListenerCertificates | None:
    """The certificates of the metrics page; None: it is plaintext. ConfigurationError names the key
    of the file, and nothing secret.
    """
    given = {key.removeprefix(PREFIX): value for key, value in properties.items() if key in METRICS_KEYS}
    if not given:
        return None
    try:
        return ListenerCertificates(load_settings(ServerTlsSettings, given), listener="metrics")
    except ConfigurationError as error:
        value = HIDDEN if error.key in TLS_SECRETS else error.value
        raise ConfigurationError(PREFIX + error.key, value, error.accepted) from None
