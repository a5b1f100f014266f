"""The log of refused logins: lines that are written together, and none that is lost."""

from __future__ import annotations

import logging

import pytest

from broker.authentication import refusal_log as module
from broker.authentication.entrances import Entrances
from broker.authentication.listener_security import read_listener_security
from tests.support.eventually import eventually


@pytest.fixture(autouse=True)
def _every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def refuse(log: module.RefusalLog, *ports: int, host: str = "127.0.0.1") -> None:
    for port in ports:
        log.add(client=f"{host}:{port}", listener="CLIENT", reason="wrong password")


async def test_refusals_of_a_moment_are_written_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WRITTEN_AFTER_S", 0.01)
    log = module.RefusalLog()
    refuse(log, 1)
    refuse(log, 2, host="::1")
    assert not caplog.messages
    await eventually(lambda: bool(caplog.messages))
    refuse(log, 3)
    await eventually(lambda: len(caplog.messages) == 2)
    together, later = caplog.messages
    assert all(text in together for text in ("login refused", "127.0.0.1:1", "::1:2", "wrong password"))
    assert "127.0.0.1:3" in later


async def test_a_storm_from_one_address_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = module.RefusalLog()
    refuse(log, *range(1, 200))
    refuse(log, 7, host="10.0.0.1")
    log.write()
    (text,) = caplog.messages
    lines = [line for line in text.splitlines() if "login refused" in line]
    assert ["refusals=199" in line and "client=127.0.0.1:1 " in line for line in lines] == [True, False]
    assert "client=10.0.0.1:7 " in lines[1]
    assert "refusals=1 " in lines[1]
    refuse(log, 8)
    log.write()
    assert "refusals=1 " in caplog.messages[-1]


async def test_a_broker_that_stops_writes_its_last_refusals(caplog: pytest.LogCaptureFixture) -> None:
    entrances = Entrances(read_listener_security({}, {"CLIENT": "PLAINTEXT"}))
    refuse(entrances.by_listener["CLIENT"].logins.refusals, 1)
    await entrances.stop()
    assert ["127.0.0.1:1" in message for message in caplog.messages] == [True]
