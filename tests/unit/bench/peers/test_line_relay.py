"""The times at which packets of a long line arrive."""

from __future__ import annotations

import math
import random

import pytest

from bench.peers.line_relay import QUEUE_S, Line


def line(*, loss: float = 0, bytes_per_s: float = math.inf) -> Line:
    return Line(delay_s=0.05, loss=loss, bytes_per_s=bytes_per_s, chance=random.Random(1))


def test_without_a_rate_each_packet_takes_the_delay() -> None:
    empty = line()
    assert [empty.arrival_s(1_400, 10.0) for _ in range(3)] == [10.05] * 3


def test_packets_sent_at_once_follow_each_other_at_the_rate() -> None:
    narrow = line(bytes_per_s=1e6)
    assert [narrow.arrival_s(1_000, 10.0) for _ in range(3)] == pytest.approx([10.051, 10.052, 10.053])


def test_a_packet_that_would_wait_too_long_is_dropped_until_the_line_has_emptied() -> None:
    narrow = line(bytes_per_s=1e6)
    arrived = [narrow.arrival_s(1_000, 10.0) is not None for _ in range(200)]
    assert arrived == [True] * (int(QUEUE_S * 1_000) + 1) + [False] * (199 - int(QUEUE_S * 1_000))
    assert narrow.arrival_s(1_000, 10.0 + QUEUE_S) is not None


def test_the_share_that_is_lost_is_the_one_asked_for() -> None:
    lossy = line(loss=0.01)
    lost = sum(lossy.arrival_s(1_400, 10.0) is None for _ in range(10_000))
    assert 60 < lost < 140
