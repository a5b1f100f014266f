"""The producing client of a drill. Promised: it sends each record once to each producer, so that a
repeated record in the log is one that a site has repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dr.drill.load import ProducerSettings, ProducingClient, _StopFlag


class FatalError:
    def fatal(self) -> bool:
        return True


class PlayedProducer:
    """The first ones take a record each, have a full queue then, and a fatal error when they are
    served; the last one takes everything.
    """

    made: list[PlayedProducer]
    broken_count = 2

    def __init__(self, options: dict[str, Any]) -> None:
        self._on_error: Callable[[object], None] = options["error_cb"]
        self.sent: list[bytes] = []
        self.is_full = False
        self.is_broken = len(self.made) < self.broken_count
        self.made.append(self)

    def produce(self, _topic: str, *, headers: dict[str, str], **_: Any) -> None:
        if self.is_broken and self.sent:
            self.is_full = True
            raise BufferError
        self.sent.append(headers.popitem()[1].encode())

    def poll(self, _timeout_s: float) -> None:
        if self.is_broken and self.is_full:
            self._on_error(FatalError())

    def purge(self) -> None:
        """Nothing waits in a queue."""


def test_a_record_that_waits_for_a_full_queue_is_sent_once_when_the_producer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlayedProducer.made = []
    monkeypatch.setattr("dr.drill.load.Producer", PlayedProducer)
    monkeypatch.setattr("dr.drill.load.FLUSH_AT_END_S", 0)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    settings = ProducerSettings(name="shop", bootstrap_servers="h:1", history=tmp_path / "history", count=3)
    ProducingClient(settings, _StopFlag()).run()
    first, second, third = b"shop:0", b"shop:1", b"shop:2"
    assert [producer.sent for producer in PlayedProducer.made] == [[first], [first], [first, second, third]]
