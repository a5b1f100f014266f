"""How long the requests of one API took, in all and in each of Kafka's phases, and their errors:
plain counters that every request adds to. `make setup` compiles this module
(`runtime/compiled.py`).

Callers: broker/network/exchange.py records, broker/metrics.py makes samples of it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final

LATENCY_BOUNDS_MS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0, 30000.0)


class Latencies:
    """The durations of one kind of event, as a histogram."""

    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.sum_ms = 0.0

    def record(self, elapsed_ms: float) -> None:
        """Count one more request with this latency."""
        self.buckets[bisect_left(LATENCY_BOUNDS_MS, elapsed_ms)] += 1
        self.sum_ms += elapsed_ms

    def cumulative_buckets(self, event_count: int = 0) -> list[tuple[str, float]]:
        """The buckets of a Prometheus histogram: for each bound, the number of events that took no
        longer. If `event_count` exceeds the recorded events, the others took no time.
        """
        counts, running, found = list(self.buckets), 0, []
        counts[0] += max(event_count - sum(counts), 0)
        for bound, count in zip((*map(str, LATENCY_BOUNDS_MS), "+Inf"), counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


class ApiMetrics(Latencies):
    """Requests of one API: their number, the number of failures, the total time, and the time in
    each of Kafka's phases.

    Most phases record only requests that took time: the hot path records nothing for a phase in
    which it did not wait.
    """

    __slots__ = (
        "errors",
        "local",
        "name",
        "remote",
        "request_queue",
        "response_queue",
        "response_send",
        "throttle",
        "unanswered_count",
    )

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.request_queue, self.local, self.remote = Latencies(), Latencies(), Latencies()
        self.throttle, self.response_queue, self.response_send = Latencies(), Latencies(), Latencies()
        self.errors: Counter[int] = Counter()
        """The errors that clients received, by code, without 0: a response counts once for each
        partition, topic or group with the error.
        """
        self.unanswered_count = 0

    def count_errors(self, codes: Iterable[int]) -> None:
        """Count the error codes of a response; 0 is not counted."""
        for code in codes:
            if code:
                self.errors[int(code)] += 1

    def count_unanswered(self) -> None:
        """A request ended with its connection and not with an answer."""
        self.unanswered_count += 1
