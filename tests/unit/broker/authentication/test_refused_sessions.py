"""The end of a connection whose login was refused."""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from broker.authentication.core.sasl_login import Answer, SaslOffer
from broker.authentication.sasl_session import LoginCounts, SaslSession
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.rules.principals import ANONYMOUS


class Connection:
    """The connection of a session; notes what happens to it."""

    def __init__(self) -> None:
        self.address, self.listener, self.principal = "127.0.0.1:1", "CLIENT", ANONYMOUS
        self.is_login_refused = False
        self.events: list[str] = []

    def answer(self, parts: object) -> None: ...

    def open_gate(self) -> None: ...

    def shut_gate(self) -> None: ...

    def close(self, reason: str) -> None:
        self.events.append(f"closed: {reason}")

    def login_failed(self) -> None:
        self.events.append("counted")


async def test_others_have_a_turn_between_the_answer_to_a_refusal_and_the_end_of_its_connection() -> None:
    connection, counts = Connection(), LoginCounts()
    offer = SaslOffer(mechanisms={}, session_ms_max={}, failure_delay_ms=0)
    session = SaslSession(connection, offer, ManualClock(), counts, frame_bytes_max=1000)

    def answering() -> None:
        connection.events.append("answered")
        asyncio.get_running_loop().call_soon(connection.events.append, "another client is served")

    session.refuse(Answer(ErrorCode.sasl_authentication_failed, "wrong password"), answering)
    await eventually(lambda: len(connection.events) == 4)
    assert connection.events == [
        "counted",
        "answered",
        "another client is served",
        "closed: its login was refused",
    ]
    assert counts.failed_count == 1
    counts.refusals.write()
