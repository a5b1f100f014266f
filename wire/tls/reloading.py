"""The context of a listener, which checks its files for changes before each connection."""

from __future__ import annotations

import ssl

from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.security.file_stamps import stamps_of
from wire.tls.server_settings import ServerTlsSettings
from wire.tls.shown_certificates import note_shown, validity_of

log = get_logger(__name__)


class ListenerCertificates:
    """The context for the next connection. A file that cannot be used is logged, and the former
    certificates count.
    """

    def __init__(self, settings: ServerTlsSettings, *, listener: str) -> None:
        """`listener` names what listens, for the log. ConfigurationError when a file cannot be
        used.
        """
        self._settings = settings
        self._listener = listener
        self._stamp = stamps_of(settings.files())
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """The certificates as they are now."""
        stamp = stamps_of(self._settings.files())
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._read()
            except ConfigurationError as error:
                log.warning("changed certificates cannot be used", listener=self._listener, reason=str(error))
        return self._context

    def _read(self) -> ssl.SSLContext:
        context = self._settings.server_context()
        note_shown(validity_of(self._settings, listener=self._listener), listener=self._listener)
        return context
