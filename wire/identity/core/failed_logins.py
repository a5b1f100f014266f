"""Limits how many logins of one address may fail. Pure: the caller gives the time.

More than `failures_max` failures within `window_ms` have the address refused for `window_ms` from
the last of them. Addresses of IPv6 count by their first 64 bits, which one host has as its own. The
table is bounded: the address that has failed the longest time ago is forgotten first, so that a
storm from many addresses frees none that fails again and again.

Callers: broker/network/connection_server.py, bridge/access/logins.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from runtime.security.client_networks import network_of

ADDRESSES_MAX: Final = 10_000
FAILURES_MAX_KEY: Final = "antipode.failed.logins.max"
WINDOW_MS_KEY: Final = "antipode.failed.logins.window.ms"
DELAY_MS_KEY: Final = "connection.failed.authentication.delay.ms"
FAILURES_MAX: Final = 1000
"""At a broker. One client that is set up wrongly and tries again without a pause fails some 400
times a minute (kafka-python); it must not lock out others behind its address.
"""
WINDOW_MS: Final = 60_000
DELAY_MS: Final = 100


class _Failures:
    """The failures of one address since `began_at_ms`."""

    __slots__ = ("began_at_ms", "count", "refused_until_ms")

    def __init__(self, began_at_ms: float) -> None:
        self.began_at_ms = began_at_ms
        self.count = 0
        self.refused_until_ms = began_at_ms


class FailedLogins:
    """The addresses whose logins have failed."""

    def __init__(self, *, failures_max: int, window_ms: float, addresses_max: int = ADDRESSES_MAX) -> None:
        """`failures_max` 0: no address is refused."""
        self.failures_max = failures_max
        self.window_ms = window_ms
        self._addresses_max = addresses_max
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def record(self, now_ms: float, address: str) -> bool:
        """A login of the address has failed; True if the address is refused from now on."""
        if not self.failures_max:
            return False
        host = network_of(address)
        found = self._failures.get(host)
        if found is None or now_ms - found.began_at_ms >= self.window_ms:
            until_ms = now_ms if found is None else found.refused_until_ms
            found = self._failures[host] = _Failures(now_ms)
            found.refused_until_ms = until_ms
        self._failures.move_to_end(host)
        if len(self._failures) > self._addresses_max:
            self._failures.popitem(last=False)
        found.count += 1
        was_refused = found.refused_until_ms > now_ms
        if found.count > self.failures_max:
            found.refused_until_ms = now_ms + self.window_ms
        return not was_refused and found.refused_until_ms > now_ms

    def is_refused(self, now_ms: float, address: str) -> bool:
        """True while logins of the address are refused."""
        # nearly always empty: the address of a good client need not be parsed
        if not self._failures:
            return False
        found = self._failures.get(network_of(address))
        return found is not None and found.refused_until_ms > now_ms

    def refused_count(self, now_ms: float) -> int:
        """The number of addresses that are refused."""
        return sum(found.refused_until_ms > now_ms for found in tuple(self._failures.values()))
