"""The login of one connection: it takes handshakes and messages, and returns answers and the
connection's state. Pure.

| state | a handshake | a message | another request |
| --- | --- | --- | --- |
| no login | begins an exchange | refused | ends the connection |
| exchange | refused | goes to its mechanism | ends the connection |
| login | begins a new exchange, not within a second of the last | refused | passes while the session lasts |

Invariants. (a) Only a mechanism's own `Login` makes a login. (b) The principal of a connection
never changes: a new exchange has to end with the same name, and by the same mechanism. (c) After a
refusal the broker answers nothing more on the connection. (d) With a session that ends, each
request after its end closes the connection. Sources: KIP-152 (the requests), KIP-368 (new
exchanges).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authentication.core.sasl_mechanisms import Login, LoginRefused, Mechanism, named_token
from wire.rules.scram import HASHES

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
BEFORE_LOGIN: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
SESSION_MS_MIN: Final = 1000
"""Least time (ms) between two exchanges of a connection."""
SHOWN_MAX: Final = 40
"""The characters of a client's text that a reason, and so the log, repeats."""
TokenDeriving = Callable[[str, str], Awaitable[None] | None]
"""What the first login by a delegation token has to await: (mechanism, id); None for nothing."""


class SaslOffer(Struct, frozen=True, kw_only=True):
    """The mechanisms of a listener by name, each created for one exchange, and the longest session
    of each in ms (0: unlimited).
    """

    mechanisms: Mapping[str, Callable[[], Mechanism]]
    session_ms_max: Mapping[str, int]
    failure_delay_ms: int
    token_deriving: TokenDeriving = lambda _mechanism, _token_id: None


class Answer(NamedTuple):
    """The answer to a handshake or a message. If it `is_refused`, the connection is closed after
    it.
    """

    error: ErrorCode = ErrorCode.none
    reason: str = ""
    message: bytes = b""
    session_ms: int = 0

    @property
    def is_refused(self) -> bool:
        """True if the broker closes the connection."""
        return self.error is not ErrorCode.none


class SaslLogin:
    """The login of one connection."""

    def __init__(self, offer: SaslOffer) -> None:
        self._offer = offer
        self._exchange: Mechanism | None = None
        self._mechanism = ""
        self._is_refused = False
        self._began_at_ms = 0.0
        self.is_raw = False
        """True if messages come without a request header (SaslHandshake 0)."""
        self.login: Login | None = None
        self.ends_at_ms: float | None = None
        """The end of the session, in ms of the monotonic clock; None if it has no end."""

    @property
    def is_exchanging(self) -> bool:
        """True during an exchange."""
        return self._exchange is not None

    @property
    def is_by_token(self) -> bool:
        """True if the client has logged in by a delegation token."""
        return self.login is not None and self.login.is_by_token

    def refusal(self, api_key: int, monotonic_ms: float) -> str:
        """The reason why the client may not send the request now; empty if it may."""
        if self._is_refused:
            return "its login was refused"
        if api_key in BEFORE_LOGIN:
            return ""
        if self.login is None or self._exchange is not None:
            return f"request {api_key} came before the login"
        if self.ends_at_ms is not None and monotonic_ms >= self.ends_at_ms:
            return "its session has ended and the client has not logged in again"
        return ""

    def handshake(self, mechanism: str, version: int, monotonic_ms: float) -> Answer:
        """The client names a mechanism."""
        is_early = self.login is not None and monotonic_ms - self._began_at_ms < SESSION_MS_MIN
        if self._is_refused or self._exchange is not None or is_early:
            return self._refuse(ErrorCode.illegal_sasl_state, "SaslHandshake is not expected now")
        if mechanism not in self._offer.mechanisms or (self.login is not None and mechanism != self._mechanism):
            return self._refuse(
                ErrorCode.unsupported_sasl_mechanism, f"the mechanism {mechanism[:SHOWN_MAX]!r} is not offered"
            )
        self._exchange = self._offer.mechanisms[mechanism]()
        self._mechanism = mechanism
        self._began_at_ms = monotonic_ms
        self.is_raw = version == 0
        return Answer()

    def token_deriving(self, message: bytes) -> Awaitable[None] | None:
        """What has to be awaited before `authenticate` takes this message; None for nothing."""
        if self._exchange is None or self._mechanism not in HASHES:
            return None
        token_id = named_token(message)
        return None if token_id is None else self._offer.token_deriving(self._mechanism, token_id)

    def authenticate(self, message: bytes, *, now_ms: int, monotonic_ms: float) -> Answer:
        """The client's next message."""
        if self._exchange is None or self._is_refused:
            return self._refuse(ErrorCode.illegal_sasl_state, "SaslAuthenticate is not expected now")
        try:
            step = self._exchange.step(message)
        except LoginRefused as refusal:
            return self._refuse(ErrorCode.sasl_authentication_failed, str(refusal))
        if step.login is None:
            return Answer(message=step.answer)
        if self.login is not None and step.login.name != self.login.name:
            return self._refuse(
                ErrorCode.sasl_authentication_failed, "Cannot change principals during re-authentication"
            )
        session_ms = self._session_ms(step.login, now_ms)
        self._exchange, self.login, self.is_raw = None, step.login, False
        self.ends_at_ms = None if session_ms is None else monotonic_ms + session_ms
        return Answer(message=step.answer, session_ms=session_ms or 0)

    def _session_ms(self, login: Login, now_ms: int) -> int | None:
        most = self._offer.session_ms_max.get(self._mechanism, 0)
        # at least 1: clients take 0 for a session without an end, and would never log in again
        left = None if login.expires_at_ms is None else max(login.expires_at_ms - now_ms, 1)
        if left is None:
            return most or None
        return min(left, most) if most else left

    def _refuse(self, error: ErrorCode, reason: str) -> Answer:
        self._is_refused = True
        self._exchange = None
        return Answer(error, reason)
