"""Finds the quota that applies to a client, and computes its throttle time: Kafka's precedence and
arithmetic. Pure.

For each kind of quota the first of these entities that has it applies: user and client id, user and
any client, user, any user and client id, any user and any client, any user, client id, any client.
Usage counts for the names in the entity: all clients of a user share the user's quota, and each
user under "any user" has a separate quota.

A bandwidth or request-time quota is a `WindowedRate`: a client above it is throttled until the rate
over the windows is back at the quota. Creations and deletions of partitions use a `TokenBucket`
(KIP-599), so that a burst is accepted or refused as a whole. Used by
broker/quotas/client_throttling.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.quotas.core.rates import WindowedRate
from wire.rules.client_quotas import CLIENT_ID, USER, QuotaEntity, QuotaValues

SHARES_MAX: Final = 10_000
"""Maximum number of shares for one kind of quota; the least recently used one is removed first."""
REMEMBERED_LIMITS_MAX: Final = 10_000
UNUSED_MS_MAX: Final = 3_600_000
"""A share without use for so long is forgotten, as in Kafka."""

AnyQuotas = Mapping[QuotaEntity, QuotaValues]


class Limit(NamedTuple):
    """A quota that applies to a client, and the names under which its use is counted: an empty name
    means all.
    """

    bound: float
    user: str
    client_id: str
    entity: QuotaEntity


def limit_of(quotas: AnyQuotas, key: str, *, user: str, client_id: str) -> Limit | None:
    """The quota of this kind that holds for a client, None when it is not limited."""
    for entity, shared_by_user, shared_by_client in _candidates(user, client_id):
        bound = quotas.get(entity, {}).get(key)
        if bound is not None:
            return Limit(bound, shared_by_user, shared_by_client, entity)
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    for named_user in (user, None):
        yield ((USER, named_user), (CLIENT_ID, client_id)), user, client_id
        yield ((USER, named_user), (CLIENT_ID, None)), user, client_id
        yield ((USER, named_user),), user, ""
    yield ((CLIENT_ID, client_id),), "", client_id
    yield ((CLIENT_ID, None),), "", client_id


def compute_throttle_time_ms(rate: float, bound: float, span_ms: float) -> float:
    """The time in ms without traffic after which a rate over `span_ms` is down to the bound; 0 if
    it is not above it.
    """
    # the time in which the surplus leaves the windows
    return (rate - bound) / bound * span_ms if rate > bound else 0.0


class Share:
    """The usage that counts against one limit."""

    __slots__ = ("rate", "requests", "throttled")

    def __init__(self, samples: int, window_ms: float) -> None:
        self.rate = WindowedRate(samples, window_ms)
        self.throttled = WindowedRate(samples, window_ms)
        self.requests = WindowedRate(samples, window_ms)

    def throttle_ms_average(self, now_ms: float) -> float:
        """Return the mean throttle time over the requests of the last windows."""
        requests = self.requests.total(now_ms)
        return self.throttled.total(now_ms) / requests if requests else 0.0


class ClientRates:
    """One kind of bandwidth or request-time quota over all clients."""

    def __init__(self, key: str, *, samples: int, window_ms: float, throttle_ms_max: float | None = None) -> None:
        self.key = key
        self._samples = samples
        self._window_ms = window_ms
        self._throttle_ms_max = throttle_ms_max
        self._quotas: AnyQuotas = {}
        self._limits: dict[tuple[str, str], Limit | None] = {}
        self._shares: OrderedDict[tuple[str, str], Share] = OrderedDict()
        self.is_in_use = False
        """True if any client has such a quota; each request asks for it."""

    def take(self, quotas: AnyQuotas) -> None:
        """Apply these quotas; recent use still counts."""
        self._quotas = {entity: values for entity, values in quotas.items() if self.key in values}
        self.is_in_use = bool(self._quotas)
        # limits are found again by the new quotas; shares keep what was used
        self._limits = {}

    def _limit(self, user: str, client_id: str) -> Limit | None:
        client = (user, client_id)
        if client not in self._limits:
            if len(self._limits) >= REMEMBERED_LIMITS_MAX:
                # cleared as a whole: clients are looked up again at their next request
                self._limits.clear()
            self._limits[client] = limit_of(self._quotas, self.key, user=user, client_id=client_id)
        return self._limits[client]

    def _share(self, limit: Limit, now_ms: float) -> Share:
        key = (limit.user, limit.client_id)
        share = self._shares.get(key)
        if share is None:
            self._forget_unused(now_ms)
            share = self._shares[key] = Share(self._samples, self._window_ms)
        self._shares.move_to_end(key)
        return share

    def _forget_unused(self, now_ms: float) -> None:
        while self._shares:
            oldest = next(iter(self._shares.values()))
            if len(self._shares) < SHARES_MAX and now_ms - oldest.rate.recorded_at_ms < UNUSED_MS_MAX:
                return
            self._shares.popitem(last=False)

    def record(self, now_ms: float, *, user: str, client_id: str, amount: float) -> float:
        """Record the client's use; return its throttle time now, in ms."""
        limit = self._limit(user, client_id)
        if limit is None:
            return 0.0
        share = self._share(limit, now_ms)
        share.rate.record(now_ms, amount)
        throttle_time_ms = compute_throttle_time_ms(
            share.rate.rate_per_second(now_ms), limit.bound, share.rate.span_ms(now_ms)
        )
        if self._throttle_ms_max is not None:
            throttle_time_ms = min(throttle_time_ms, self._throttle_ms_max)
        share.requests.record(now_ms, 1)
        share.throttled.record(now_ms, throttle_time_ms)
        return throttle_time_ms

    def take_back(self, now_ms: float, *, user: str, client_id: str, amount: float) -> None:
        """Take back an amount that was just recorded, because it is not used after all."""
        limit = self._limit(user, client_id)
        if limit is not None:
            self._share(limit, now_ms).rate.record(now_ms, -amount)

    def most_in_windows(self, *, user: str, client_id: str) -> float | None:
        """The amount that the client may use at once after a silence and stay within its quota;
        None if it is not limited.
        """
        limit = self._limit(user, client_id)
        # all windows but one: the newest has only begun
        return None if limit is None else limit.bound * max(self._samples - 1, 1) * self._window_ms / 1000

    def shares(self) -> list[tuple[str, str, Share]]:
        """Recent users of a quota: user, client id and figures."""
        return [(user, client_id, share) for (user, client_id), share in tuple(self._shares.items())]


class TokenBucket:
    """Tokens that arrive at a steady rate up to a burst; a client that takes more than there are
    leaves a debt.
    """

    __slots__ = ("_burst_ms", "_tokens", "_updated_at_ms")

    def __init__(self, burst_ms: float) -> None:
        self._burst_ms = burst_ms
        self._tokens: float | None = None
        self._updated_at_ms = 0.0

    def tokens(self, now_ms: float, rate_per_second: float) -> float:
        """The tokens in the bucket now; a new bucket is full."""
        burst = rate_per_second * self._burst_ms / 1000
        if self._tokens is None:
            self._tokens = burst
        grown = self._tokens + (now_ms - self._updated_at_ms) * rate_per_second / 1000
        self._tokens = min(grown, burst)
        self._updated_at_ms = now_ms
        return self._tokens

    def take(self, now_ms: float, rate_per_second: float, amount: float) -> None:
        """Take so many."""
        self._tokens = self.tokens(now_ms, rate_per_second) - amount

    def throttle_time_ms(self, now_ms: float, rate_per_second: float) -> float:
        """The time until the debt is paid, in ms."""
        return max(-self.tokens(now_ms, rate_per_second), 0.0) * 1000 / rate_per_second


class MutationShare:
    """The usage that counts against one quota of mutations."""

    __slots__ = ("bound", "bucket", "rate", "throttle_time_ms", "used_at_ms")

    def __init__(self, samples: int, window_ms: float) -> None:
        self.bucket = TokenBucket(samples * window_ms)
        self.rate = WindowedRate(samples, window_ms)
        self.bound = 0.0
        self.throttle_time_ms = 0.0
        self.used_at_ms = 0.0


class MutationQuotas:
    """Partitions created and deleted (KIP-599) over all clients."""

    def __init__(self, key: str, *, samples: int, window_ms: float) -> None:
        self._key = key
        self._samples = samples
        self._window_ms = window_ms
        self._quotas: AnyQuotas = {}
        self._shares: OrderedDict[tuple[str, str], MutationShare] = OrderedDict()

    def take(self, quotas: AnyQuotas) -> None:
        """These quotas hold from now on."""
        self._quotas = {entity: values for entity, values in quotas.items() if self._key in values}

    def share(self, now_ms: float, *, user: str, client_id: str) -> MutationShare | None:
        """The share to which the client's mutations are charged; None if they are not limited."""
        limit = limit_of(self._quotas, self._key, user=user, client_id=client_id) if self._quotas else None
        if limit is None:
            return None
        key = (limit.user, limit.client_id)
        found = self._shares.get(key)
        if found is None:
            self._forget_unused(now_ms)
            found = self._shares[key] = MutationShare(self._samples, self._window_ms)
        self._shares.move_to_end(key)
        found.bound, found.used_at_ms = limit.bound, now_ms
        return found

    def _forget_unused(self, now_ms: float) -> None:
        while self._shares:
            oldest = next(iter(self._shares.values()))
            if len(self._shares) < SHARES_MAX and now_ms - oldest.used_at_ms < UNUSED_MS_MAX:
                return
            self._shares.popitem(last=False)

    def shares(self) -> list[tuple[str, str, MutationShare]]:
        """Recent users of a quota: user, client id and figures."""
        return [(user, client_id, share) for (user, client_id), share in tuple(self._shares.items())]


class MutationPermits:
    """The mutations of one request. A strict client (a newer version) is refused while the bucket
    is in debt; requests of others are carried out, and the client is throttled afterwards.
    """

    def __init__(self, share: MutationShare | None, *, is_strict: bool, now_ms: float) -> None:
        self._share = share
        self._is_strict = is_strict
        self._now_ms = now_ms
        self.throttle_time_ms = 0.0

    def take(self, partitions: int) -> bool:
        """True when so many partitions may be made or deleted."""
        share = self._share
        if share is None:
            return True
        # in debt: the next burst is refused whole (KIP-599)
        if self._is_strict and share.bucket.tokens(self._now_ms, share.bound) < 0:
            self._note(share)
            return False
        share.bucket.take(self._now_ms, share.bound, partitions)
        share.rate.record(self._now_ms, partitions)
        if not self._is_strict:
            self._note(share)
        return True

    def _note(self, share: MutationShare) -> None:
        self.throttle_time_ms = share.throttle_time_ms = share.bucket.throttle_time_ms(self._now_ms, share.bound)
