"""Limits on how fast clients connect: for each address (KIP-612), and for the whole broker. Pure.

A connection from an address above its rate is held for the throttle time and then closed; it does
not count. When the whole broker exceeds its rate, the connection is accepted and the listener then
pauses. Used by broker/network/connection_server.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.quotas.core.client_quotas import AnyQuotas, compute_throttle_time_ms
from broker.quotas.core.rates import WindowedRate
from wire.rules.client_quotas import CONNECTION_CREATION_RATE, IP

ADDRESSES_MAX: Final = 10_000


class ConnectionRates:
    """The rates of one broker."""

    def __init__(self, *, samples: int, window_ms: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._quotas: AnyQuotas = {}
        self._addresses: OrderedDict[str, WindowedRate] = OrderedDict()
        self._whole = WindowedRate(samples, window_ms)

    def take(self, quotas: AnyQuotas) -> None:
        """These quotas hold from now on."""
        self._quotas = {entity: values for entity, values in quotas.items() if CONNECTION_CREATION_RATE in values}

    def bound_of(self, address: str) -> float | None:
        """Connections a second that the address may make, None for no limit."""
        values = self._quotas.get(((IP, address),)) or self._quotas.get(((IP, None),))
        return None if values is None else values[CONNECTION_CREATION_RATE]

    def came_from(self, now_ms: float, address: str) -> float:
        """A connection from the address; return how long it is held before it is refused, 0 if it
        is accepted.
        """
        bound = self.bound_of(address)
        if bound is None:
            return 0.0
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.popitem(last=False)
            rate = self._addresses[address] = WindowedRate(self._samples, self._window_ms)
        self._addresses.move_to_end(address)
        rate.record(now_ms, 1)
        throttle_time_ms = compute_throttle_time_ms(rate.rate_per_second(now_ms), bound, rate.span_ms(now_ms))
        if throttle_time_ms:
            # a refused connection does not count, or a client that retries would never be accepted
            rate.record(now_ms, -1)
        return min(throttle_time_ms, self._window_ms)

    def came(self, now_ms: float, bound: float) -> float:
        """A connection to the broker, which accepts `bound` a second; return the time for which it
        must accept no other.
        """
        self._whole.record(now_ms, 1)
        throttle_time_ms = compute_throttle_time_ms(
            self._whole.rate_per_second(now_ms), bound, self._whole.span_ms(now_ms)
        )
        return min(throttle_time_ms, self._window_ms)

    def rates(self, now_ms: float) -> list[tuple[str, float]]:
        """Connections a second by address, of those that have a quota."""
        return [(address, rate.rate_per_second(now_ms)) for address, rate in tuple(self._addresses.items())]
