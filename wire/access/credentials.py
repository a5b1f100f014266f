"""Makes gRPC's credentials from the options. The server reads changed files at the next handshake,
a channel when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc

from runtime.clock import SystemClock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.metrics import show_process_figures
from runtime.security.file_stamps import stamps_of
from wire.access.connections import ControlConnections
from wire.access.core.callers import UnusableName, parse_tokens
from wire.access.core.roles import Caller
from wire.access.settings import PREFIX, ControlSettings
from wire.tls.material import TlsMaterial, files_of, tls_material
from wire.tls.shown_certificates import note_shown, validity_of

log = get_logger(__name__)

_TOKENS: Final = f"{PREFIX}tokens.location"
LISTENER: Final = "control"
"""The name of the control plane's listener in logs and metrics of certificates."""


class Credentials:
    """Certificates and tokens, and gRPC's credentials of them; changed files are read again."""

    def __init__(self, settings: ControlSettings) -> None:
        """ConfigurationError when a file cannot be used."""
        self._settings = settings
        self.connections = ControlConnections(SystemClock())
        self._stamp = stamps_of(files_of(settings))
        self._material = _material(settings)
        self._token_files = () if settings.tokens is None else (settings.tokens,)
        self._token_stamp = stamps_of(self._token_files)
        self._callers = _read_tokens(settings)

    def server(self) -> grpc.ServerCredentials:
        """The credentials for a listener. A replaced certificate is used from the next connection
        on.
        """
        self._note_shown()
        show_process_figures("control connections", self.connections.families)
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._renewed_configuration, self._settings.is_certificate_required
        )

    def channel(self) -> grpc.ChannelCredentials:
        """The credentials for a channel that is opened now."""
        self._renew()
        material = self._material
        whole = grpc.ssl_channel_credentials(material.authorities, material.private_key, material.certificate_chain)
        token = self._settings.token
        if token is None:
            return whole
        return grpc.composite_channel_credentials(whole, grpc.access_token_call_credentials(token.get_secret_value()))

    def callers(self) -> Mapping[str, Caller]:
        """Callers by the hashes of their tokens."""
        stamp = stamps_of(self._token_files)
        if stamp != self._token_stamp:
            self._token_stamp = stamp
            try:
                self._callers = _read_tokens(self._settings)
                log.info("tokens of the control plane read again", tokens=len(self._callers))
            except ConfigurationError as error:
                log.warning(
                    "tokens of the control plane cannot be used; the former ones stay in use", reason=str(error)
                )
        return self._callers

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        material = self._material
        assert material.private_key is not None, "check_server"
        assert material.certificate_chain is not None, "check_server"
        return grpc.ssl_server_certificate_configuration(
            [(material.private_key, material.certificate_chain)], material.authorities
        )

    def _renewed_configuration(self) -> grpc.ServerCertificateConfiguration:
        """gRPC asks before each handshake."""
        self.connections.begin()
        if self._renew():
            self._note_shown()
        return self._configuration()

    def _note_shown(self) -> None:
        note_shown(validity_of(self._settings, listener=LISTENER), listener=LISTENER)

    def _renew(self) -> bool:
        """Read the files again. True if they have changed and can be used."""
        stamp = stamps_of(files_of(self._settings))
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._material = _material(self._settings)
        except ConfigurationError as error:
            log.warning(
                "certificates of the control plane cannot be used; the former ones stay in use", reason=str(error)
            )
            return False
        log.info("certificates of the control plane read again")
        return True


def _material(settings: ControlSettings) -> TlsMaterial:
    try:
        return tls_material(settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{PREFIX}{error.key}", error.value, error.accepted) from error


def _read_tokens(settings: ControlSettings) -> Mapping[str, Caller]:
    if settings.tokens is None:
        return {}
    try:
        return parse_tokens(settings.tokens.read_text(encoding="utf-8"))
    except (OSError, UnusableName, UnicodeDecodeError) as error:
        accepted = f"a file of tokens ({error}); `antipode credentials token` makes a line"
        raise ConfigurationError(_TOKENS, str(settings.tokens), accepted) from error
