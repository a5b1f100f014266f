"""One connection's login: the order of requests, sessions that end, new exchanges."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.authentication.core.sasl_login import SASL_AUTHENTICATE, Answer, SaslLogin, SaslOffer
from broker.authentication.core.sasl_mechanisms import Login, LoginRefused, Step

FETCH = 1


class Scripted:
    """An exchange that takes two messages; the second names the user."""

    def __init__(self, expires_at_ms: int | None) -> None:
        self._expires_at_ms = expires_at_ms
        self._has_begun = False

    def step(self, message: bytes) -> Step:
        if message == b"wrong":
            raise LoginRefused("no")
        if not self._has_begun:
            self._has_begun = True
            return Step(b"go on")
        return Step(b"done", Login(message.decode(), self._expires_at_ms))


def login_of(*, session_ms: int = 0, expires_at_ms: int | None = None) -> SaslLogin:
    offer = SaslOffer(
        mechanisms={"ONE": lambda: Scripted(expires_at_ms), "TWO": lambda: Scripted(None)},
        session_ms_max={"ONE": session_ms},
        failure_delay_ms=0,
    )
    return SaslLogin(offer)


def log_in(login: SaslLogin, name: bytes = b"anna", *, at_ms: float = 0) -> Answer:
    assert login.handshake("ONE", 1, at_ms).error is ErrorCode.none
    assert login.authenticate(b"", now_ms=1000, monotonic_ms=at_ms) == Answer(message=b"go on")
    return login.authenticate(name, now_ms=1000, monotonic_ms=at_ms)


def test_a_login_lets_requests_pass_that_ended_the_connection_before() -> None:
    login = login_of()
    assert "before the login" in login.refusal(FETCH, 0)
    login.handshake("ONE", 1, 0)
    assert "before the login" in login.refusal(FETCH, 0)
    assert not login.refusal(SASL_AUTHENTICATE, 0)
    login.authenticate(b"", now_ms=0, monotonic_ms=0)
    assert login.authenticate(b"anna", now_ms=0, monotonic_ms=0) == Answer(message=b"done")
    assert (login.login, login.ends_at_ms) == (Login("anna"), None)
    assert not login.refusal(FETCH, 1e12)


@pytest.mark.parametrize(
    ("session_ms", "expires_at_ms", "told_ms"),
    [(0, None, 0), (5000, None, 5000), (0, 4000, 3000), (5000, 4000, 3000), (2000, 4000, 2000), (0, 10, 1)],
)
def test_a_session_lasts_as_long_as_the_shorter_of_config_and_token(
    session_ms: int, expires_at_ms: int | None, told_ms: int
) -> None:
    login = login_of(session_ms=session_ms, expires_at_ms=expires_at_ms)
    assert log_in(login).session_ms == told_ms
    is_endless = not session_ms and expires_at_ms is None
    assert not login.refusal(FETCH, told_ms - 1)
    assert bool(login.refusal(FETCH, told_ms)) is not is_endless


def test_a_client_may_log_in_again_as_itself_only() -> None:
    login = login_of(session_ms=5000)
    log_in(login)
    assert login.handshake("ONE", 1, 3000).error is ErrorCode.none
    assert "before the login" in login.refusal(FETCH, 3000)
    login.authenticate(b"", now_ms=1000, monotonic_ms=3000)
    login.authenticate(b"anna", now_ms=1000, monotonic_ms=3000)
    assert not login.refusal(FETCH, 7999)
    login.handshake("ONE", 1, 6000)
    login.authenticate(b"", now_ms=1000, monotonic_ms=6000)
    refused = login.authenticate(b"bert", now_ms=1000, monotonic_ms=6000)
    assert refused.error is ErrorCode.sasl_authentication_failed
    assert login.refusal(SASL_AUTHENTICATE, 6000)


@pytest.mark.parametrize(("mechanism", "at_ms"), [("TWO", 3000), ("ONE", 999), ("THREE", 3000)])
def test_a_new_exchange_of_another_mechanism_or_too_soon_ends_the_connection(mechanism: str, at_ms: float) -> None:
    login = login_of(session_ms=5000)
    log_in(login)
    assert login.handshake(mechanism, 1, at_ms).is_refused
    assert login.refusal(FETCH, at_ms)


def test_messages_out_of_order_are_refused() -> None:
    login = login_of()
    assert login.authenticate(b"", now_ms=0, monotonic_ms=0).error is ErrorCode.illegal_sasl_state
    login = login_of()
    login.handshake("ONE", 1, 0)
    assert login.handshake("ONE", 1, 0).error is ErrorCode.illegal_sasl_state
    login = login_of()
    login.handshake("ONE", 1, 0)
    assert login.authenticate(b"wrong", now_ms=0, monotonic_ms=0) == Answer(ErrorCode.sasl_authentication_failed, "no")
    assert login.handshake("ONE", 1, 5000).is_refused
    assert login_of().handshake("GSSAPI", 1, 0).error is ErrorCode.unsupported_sasl_mechanism


def test_a_client_without_a_login_writes_no_text_of_any_size_into_the_log() -> None:
    answer = login_of().handshake("GSSAPI" * 5000, 1, 0)
    assert answer.error is ErrorCode.unsupported_sasl_mechanism
    assert "GSSAPI" in answer.reason
    assert len(answer.reason) < 200
