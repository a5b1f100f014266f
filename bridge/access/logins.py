"""The principal of an HTTP request: by its password, its token, or the certificate of its
connection.

A wrong login is answered after a delay. After too many wrong passwords from one address, the bridge
accepts from it only passwords that it accepted before, for a while: other clients behind the same
proxy still log in.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from bridge.access.passwords import Passwords
from bridge.access.security import BridgeSecurity, Method
from bridge.config import BridgeSettings
from bridge.core.authorization_header import BasicLogin, BearerLogin, read_authorization
from bridge.core.refusals import too_many, unauthorized
from bridge.metrics import BridgeMetrics
from runtime.clock import SystemClock
from runtime.logs import get_logger
from wire.identity.core.distinguished_names import subject_of
from wire.identity.core.failed_logins import FAILURES_MAX_KEY, FailedLogins
from wire.identity.core.json_web_tokens import InvalidToken
from wire.identity.token_checks import TokenKeys, read_token_check

LOOK_INTERVAL_S: Final = 0.5
CERTIFICATE: Final = "antipode.certificate"
"""The key of a request's scope with the certificate of its connection (DER)."""
ANONYMOUS: Final = "ANONYMOUS"

log = get_logger(__name__)


class HttpPrincipal(NamedTuple):
    """The sender of a request, and until when its login is valid (Unix ms; None: until the end of
    the request).
    """

    name: str
    expires_at_ms: int | None = None


class Logins:
    """The logins that a bridge accepts."""

    def __init__(self, security: BridgeSecurity, settings: BridgeSettings, metrics: BridgeMetrics) -> None:
        """ConfigurationError when a file cannot be used."""
        self._failed = FailedLogins(failures_max=settings.failed_logins_max, window_ms=settings.failed_logins_window_ms)
        self._delay_s = settings.failed_login_delay_ms / 1000
        self._security = security
        self._passwords = Passwords(security.users) if Method.BASIC in security.methods and security.users else None
        self._keys = TokenKeys()
        self._token_holder = (
            read_token_check(security.properties.get, self._keys) if Method.BEARER in security.methods else None
        )
        self._clock = SystemClock()
        metrics.add_gauge("refused_addresses", lambda: self._failed.refused_count(self._clock.monotonic_ms()))

    def stop(self) -> None:
        """End the threads."""
        if self._passwords is not None:
            self._passwords.stop()

    async def keep_keys_read(self) -> None:
        """Read the keys of tokens again when they change, for as long as this runs."""
        while True:
            await self._keys.look(self._clock)
            await asyncio.sleep(LOOK_INTERVAL_S)

    @property
    def challenges(self) -> list[str]:
        """The values of `WWW-Authenticate`."""
        schemes = {Method.BASIC: "Basic", Method.BEARER: "Bearer"}
        realm = self._security.realm.replace("\\", "").replace('"', "")
        return [f'{name} realm="{realm}"' for method, name in schemes.items() if method in self._security.methods]

    async def principal_of(self, scope: Scope) -> HttpPrincipal:
        """The principal of a request. Refused (401, or 429 for an address that has failed too
        often); the reason never names the part of the login that was wrong.
        """
        if self._security.is_open:
            return HttpPrincipal(ANONYMOUS)
        header = Headers(scope=scope).get("authorization")
        if header is not None:
            client = scope.get("client")
            return await self._by_header(header, address=client[0] if client else "")
        certificate = scope.get(CERTIFICATE)
        if Method.SSL in self._security.methods and certificate is not None:
            return self._by_certificate(certificate)
        raise unauthorized("no credentials")

    async def _by_header(self, header: str, *, address: str) -> HttpPrincipal:
        try:
            login = read_authorization(header)
        except ValueError as error:
            raise unauthorized(str(error)) from error
        match login:
            case BasicLogin() if self._passwords is not None:
                await self._check_password(self._passwords, login, address)
                return HttpPrincipal(login.name)
            case BearerLogin() if self._token_holder is not None:
                try:
                    return HttpPrincipal(*self._token_holder(login.token))
                except InvalidToken as error:
                    await asyncio.sleep(self._delay_s)
                    raise unauthorized(f"the token is invalid: {error}") from error
            case _:
                raise unauthorized("a kind of login that this bridge does not accept")

    async def _check_password(self, passwords: Passwords, login: BasicLogin, address: str) -> None:
        if passwords.is_remembered(login.name, login.password):
            return
        if self._failed.is_refused(self._clock.monotonic_ms(), address):
            raise too_many("Too many logins of this address have failed; try again later.")
        if await passwords.is_right(login.name, login.password):
            return
        if self._failed.record(self._clock.monotonic_ms(), address):
            log.warning(
                "logins of an address are refused for a while: too many have failed",
                client=address,
                key=FAILURES_MAX_KEY,
                value=self._failed.failures_max,
                refused_ms=self._failed.window_ms,
            )
        await asyncio.sleep(self._delay_s)
        raise unauthorized("wrong name or password")

    def _by_certificate(self, certificate: bytes) -> HttpPrincipal:
        try:
            name = self._security.principal_rules.name_of(subject_of(certificate))
        except ValueError:
            name = None
        if not name:
            raise unauthorized("no rule of ssl.principal.mapping.rules matches the certificate's subject")
        return HttpPrincipal(name)
