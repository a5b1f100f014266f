"""Client quotas: count what requests cost, and compute how long clients are throttled.

The quotas come with the image, so a change applies to the next request. Each broker counts for
itself, as in Kafka. Antipode's own programs (other brokers, mirrors, tools) are not throttled where
clients are anonymous: replication must not wait behind clients, and a mirror has a byte rate of its
own. If clients have principals, a program's name exempts it from nothing: any client can claim the
name, and an operator can give the principal of a mirror its own quota. A request that a broker
forwards for its client was charged there (`Dispatcher.is_exempt`).
`broker/quotas/core/client_quotas.py` decides. Handlers ask through `Exchange.throttle_time_ms`
(`broker/network/exchange.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.quotas.core.client_quotas import AnyQuotas, ClientRates, MutationPermits, MutationQuotas
from broker.quotas.core.connection_rates import ConnectionRates
from broker.settings.config import BrokerSettings
from runtime.clock import Clock
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.rules.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from wire.rules.principals import ANONYMOUS, Principal

STRICT_MUTATIONS_FROM: Final = {19: 6, 20: 5, 37: 3}
"""Versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know
THROTTLING_QUOTA_EXCEEDED.
"""
QUOTA_EXCEEDED_MESSAGE: Final = "The throttling quota has been exceeded."
_PERCENT_OF_NS: Final = 100 / 1e9


class QuotaClient(NamedTuple):
    """The key of a quota: the name of the client's principal, and its client id."""

    user: str
    client_id: str


class Quotas:
    """All quotas of one broker."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._clock = clock
        samples, window_ms = settings.quota_window_count, settings.quota_window_s * 1000
        self.produce = ClientRates(PRODUCER_BYTE_RATE, samples=samples, window_ms=window_ms)
        self.fetch = ClientRates(CONSUMER_BYTE_RATE, samples=samples, window_ms=window_ms)
        self.request = ClientRates(REQUEST_PERCENTAGE, samples=samples, window_ms=window_ms, throttle_ms_max=window_ms)
        self.mutations = MutationQuotas(
            CONTROLLER_MUTATION_RATE,
            samples=settings.controller_quota_window_count,
            window_ms=settings.controller_quota_window_s * 1000,
        )
        self.connections = ConnectionRates(samples=samples, window_ms=window_ms)
        self.stored: AnyQuotas = {}
        self.is_in_use = False
        self.counts_time = False

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Take the quotas of a new image."""
        if before.quotas is after.quotas:
            return
        self.stored = after.quotas
        for kind in (self.produce, self.fetch, self.request, self.mutations, self.connections):
            kind.take(after.quotas)
        self.is_in_use = bool(after.quotas)
        self.counts_time = self.request.is_in_use

    def is_exempt(self, client_software: str, principal: Principal) -> bool:
        """True if no quota applies to this client."""
        return not self.is_in_use or (client_software == CLIENT_SOFTWARE_NAME and principal == ANONYMOUS)

    def used_bytes(self, rates: ClientRates, client: QuotaClient, size: int) -> float:
        """Charge bytes that a client produced or will be sent; return its throttle time in ms."""
        return rates.record(self._clock.monotonic_ms(), user=client.user, client_id=client.client_id, amount=size)

    def take_back_bytes(self, rates: ClientRates, client: QuotaClient, size: int) -> None:
        """Return bytes that are not sent after all."""
        rates.take_back(self._clock.monotonic_ms(), user=client.user, client_id=client.client_id, amount=size)

    def most_fetched(self, client: QuotaClient) -> int | None:
        """Maximum bytes of one response; None without a limit by quotas."""
        most = self.fetch.most_in_windows(user=client.user, client_id=client.client_id)
        return None if most is None else max(int(most), 1)

    def used_time(self, client: QuotaClient, busy_ns: int) -> float:
        """Charge the time for which a request kept the broker busy; return the client's throttle
        time in ms.
        """
        used = busy_ns * _PERCENT_OF_NS
        return self.request.record(
            self._clock.monotonic_ms(), user=client.user, client_id=client.client_id, amount=used
        )

    def mutation_permits(self, context: RequestContext, *, is_free: bool = False) -> MutationPermits:
        """The quota permits of a request that creates or deletes partitions; a request that only
        validates is free. Metadata is never strict.
        """
        now_ms = self._clock.monotonic_ms()
        share = None
        if not is_free and not self.is_exempt(context.client_software, context.principal):
            share = self.mutations.share(now_ms, user=context.principal.name, client_id=context.client_id or "")
        strict_from = STRICT_MUTATIONS_FROM.get(context.api_key)
        is_strict = strict_from is not None and context.api_version >= strict_from
        return MutationPermits(share, is_strict=is_strict, now_ms=now_ms)
