"""The entrances for new connections at each listener of a running broker: their certificates, and
how they get a principal.

`Entrance` is what `broker/network` asks. Certificate files are checked twice a second. When they
have changed, new connections use the new files, and existing connections keep their certificates.
Files that cannot be used are reported once for each change, and the files in use stay.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.authentication.core.sasl_login import SaslOffer
from broker.authentication.delegation_tokens import DelegationTokens
from broker.authentication.listener_security import ListenerSecurity
from broker.authentication.sasl_offers import ScramUsers, read_sasl_offer
from broker.authentication.sasl_session import Client, LoginCounts, SaslSession
from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from runtime.logs import get_logger
from runtime.security.file_stamps import FileStamps, stamps_of
from runtime.supervision import Supervisor
from wire.identity.core.distinguished_names import subject_of
from wire.identity.token_checks import TokenKeys
from wire.rules.principals import ANONYMOUS, USER, Principal
from wire.tls.core.validity import Validity
from wire.tls.read_ahead import read_ahead
from wire.tls.server_settings import ServerTlsSettings
from wire.tls.shown_certificates import note_shown, validity_of

log = get_logger(__name__)

LOOK_INTERVAL_S: Final = 0.5
OnRead = Callable[[ListenerSecurity], None]


class Refused(Exception):
    """The connection has no principal; the text says why."""


class Entrance:
    """The security of one listener."""

    def __init__(self, security: ListenerSecurity, users: ScramUsers, on_read: OnRead) -> None:
        self.security = security
        self.context: ssl.SSLContext | None = None
        self.logins = LoginCounts()
        self.tokens = TokenKeys()
        self._users = users
        self._on_read = on_read
        self._offer: SaslOffer | None = None
        self._seen: FileStamps = ()
        self.take(security)

    def take(self, security: ListenerSecurity) -> None:
        """Apply other settings, and read their files. ConfigurationError."""
        if security.tls is not None:
            # stamps before the read: a file that changes in between is read again
            seen = _stamps(security)
            self.context, validity = _read(security.tls, listener=security.name)
            self._seen = seen
            note_shown(validity, listener=security.name)
        self._offer = read_sasl_offer(security.properties, self._users, self.tokens) if security.is_sasl else None
        self.security = security
        self._on_read(security)

    def session(self, client: Client, clock: Clock, *, frame_bytes_max: int) -> SaslSession | None:
        """The SASL session for a new connection; None if clients do not log in here."""
        if self._offer is None:
            return None
        return SaslSession(client, self._offer, clock, self.logins, frame_bytes_max=frame_bytes_max)

    @property
    def has_changed_files(self) -> bool:
        """True if a file has changed since it was read."""
        return self.context is not None and _stamps(self.security) != self._seen

    async def read_files_again(self) -> None:
        """Read the files again, and use them if they are valid."""
        security, seen = self.security, _stamps(self.security)
        assert security.tls is not None
        # also on failure: a broken file is reported once for each change
        self._seen = seen
        try:
            context, validity = await asyncio.to_thread(partial(_read, security.tls, listener=security.name))
        except ConfigurationError as error:
            reason = str(error)
            log.error("changed certificates cannot be used", listener=security.name, reason=reason)  # noqa: TRY400
            return
        # other settings were applied while the thread read: their files are already in use
        if self.security is security:
            self.context = context
            self._on_read(security)
            log.info("certificates were read again", listener=security.name)
            note_shown(validity, listener=security.name)

    def note_handshake(self, *, is_done: bool) -> None:
        """Record that a TLS handshake has succeeded or failed."""
        if not is_done:
            self.logins.failed_count += 1
        elif not self.security.is_sasl:
            self.logins.successful_count += 1

    def principal_of(self, connected: ssl.SSLSocket | None) -> Principal:
        """The principal of a connection whose client does not log in. Raises Refused."""
        certificate = None if connected is None else connected.getpeercert(binary_form=True)
        # with SASL, the login gives the principal, not the certificate
        if certificate is None or self.security.is_sasl:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            raise Refused(f"the certificate's subject cannot be read ({error})") from error
        name = self.security.rules.name_of(subject)
        if not name:
            raise Refused(f"no rule of ssl.principal.mapping.rules matches {subject!r}")
        return Principal(USER, name)


class Entrances:
    """All listeners of a broker."""

    def __init__(
        self,
        security: Mapping[str, ListenerSecurity],
        on_read: OnRead = lambda _: None,
        tokens: DelegationTokens | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`on_read` is called with a listener's security after its files were read."""
        self.users = ScramUsers(tokens)
        self._clock = clock or SystemClock()
        self.by_listener = {name: Entrance(found, self.users, on_read) for name, found in security.items()}
        self._watch = Supervisor()

    def take(self, security: Mapping[str, ListenerSecurity]) -> None:
        """Apply other settings. If it raises ConfigurationError, some listeners already have the
        new settings.
        """
        for name, entrance in self.by_listener.items():
            if security[name].properties != entrance.security.properties:
                entrance.take(security[name])

    def start(self) -> None:
        """Begin to look at files."""
        if any(entrance.context is not None for entrance in self.by_listener.values()):
            self._watch.start("certificate files", self._look_at_files)
        # apart from the files: a silent authorization server must delay no certificate
        for name, entrance in self.by_listener.items():
            if entrance.tokens.found:
                self._watch.start(f"token keys of {name}", partial(self._look_at_keys, entrance), kind="token keys")

    async def _look_at_files(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            for entrance in self.by_listener.values():
                if entrance.has_changed_files:
                    await entrance.read_files_again()

    async def _look_at_keys(self, entrance: Entrance) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            await entrance.tokens.look(self._clock)

    async def stop(self) -> None:
        """Stop checking, and write the last lines of the log."""
        await self._watch.stop()
        for entrance in self.by_listener.values():
            entrance.logins.refusals.write()


def _read(settings: ServerTlsSettings, *, listener: str) -> tuple[ssl.SSLContext, Validity | None]:
    """The context of the files, and the validity of the listener's certificate.
    ConfigurationError.
    """
    context = settings.server_context()
    # `TlsChannel` receives until nothing is left, as connections of such a context demand
    read_ahead(context)
    return context, validity_of(settings, listener=listener)


def _stamps(security: ListenerSecurity) -> FileStamps:
    return stamps_of(() if security.tls is None else security.tls.files())
