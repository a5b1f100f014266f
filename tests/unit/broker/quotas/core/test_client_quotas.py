"""Quotas as in Kafka: the entity that applies, the clients that count together, the throttle time
of a client.
"""

from __future__ import annotations

import pytest

from broker.quotas.core.client_quotas import AnyQuotas, ClientRates, MutationPermits, MutationQuotas, limit_of
from broker.quotas.core.connection_rates import ConnectionRates
from wire.rules.client_quotas import CLIENT_ID, IP, USER, QuotaEntity

KEY = "producer_byte_rate"
PRECEDENCE: list[tuple[QuotaEntity, tuple[str, str]]] = [
    (((USER, "u"), (CLIENT_ID, "c")), ("u", "c")),
    (((USER, "u"), (CLIENT_ID, None)), ("u", "c")),
    (((USER, "u"),), ("u", "")),
    (((USER, None), (CLIENT_ID, "c")), ("u", "c")),
    (((USER, None), (CLIENT_ID, None)), ("u", "c")),
    (((USER, None),), ("u", "")),
    (((CLIENT_ID, "c"),), ("", "c")),
    (((CLIENT_ID, None),), ("", "c")),
]


def _rates(quotas: AnyQuotas, **limits: float) -> ClientRates:
    rates = ClientRates(KEY, samples=11, window_ms=1000, **limits)
    rates.take(quotas)
    return rates


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_first_entity_in_kafkas_order_holds(first: int) -> None:
    quotas = {entity: {KEY: float(index)} for index, (entity, _) in enumerate(PRECEDENCE) if index >= first}
    limit = limit_of(quotas, KEY, user="u", client_id="c")
    assert limit is not None
    assert limit.bound == first
    assert (limit.user, limit.client_id) == PRECEDENCE[first][1]


def test_an_entity_without_this_kind_of_quota_is_passed_over() -> None:
    quotas = {((USER, "u"),): {"consumer_byte_rate": 1.0}, ((CLIENT_ID, None),): {KEY: 2.0}}
    limit = limit_of(quotas, KEY, user="u", client_id="c")
    assert limit is not None
    assert limit.bound == 2.0


def test_quotas_of_others_limit_no_other_client() -> None:
    rates = _rates({((CLIENT_ID, "other"),): {KEY: 1.0}})
    assert rates.record(0, user="u", client_id="c", amount=1e9) == 0.0
    assert rates.shares() == []


def test_a_client_is_throttled_until_its_rate_over_the_windows_is_down_to_its_quota() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 100.0}})
    assert rates.record(0, user="u", client_id="c", amount=1000) == 0.0
    assert rates.record(0, user="u", client_id="c", amount=1000) == 10_000.0


def test_resting_clients_keep_to_their_rate() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 1000.0}})
    now_ms, sent = 0.0, 0
    while now_ms < 120_000:
        sent += 500
        now_ms += 1 + rates.record(now_ms, user="u", client_id="c", amount=500)
    assert sent == pytest.approx(120_000, rel=0.15)


def test_clients_of_one_user_share_the_users_quota_and_those_of_any_client_do_not() -> None:
    shared = _rates({((USER, "u"),): {KEY: 100.0}})
    shared.record(0, user="u", client_id="one", amount=1000)
    assert shared.record(0, user="u", client_id="two", amount=1) > 0
    single = _rates({((CLIENT_ID, None),): {KEY: 100.0}})
    single.record(0, user="u", client_id="one", amount=1000)
    assert single.record(0, user="u", client_id="two", amount=1) == 0


def test_a_changed_quota_holds_at_once_for_what_was_used_before() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 100.0}})
    assert rates.record(0, user="u", client_id="c", amount=2000) > 0
    rates.take({((CLIENT_ID, "c"),): {KEY: 1000.0}})
    assert rates.record(0, user="u", client_id="c", amount=1) == 0
    rates.take({})
    assert rates.record(0, user="u", client_id="c", amount=1e9) == 0
    assert not rates.is_in_use


def test_an_amount_that_is_taken_back_was_not_used() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 100.0}})
    assert rates.record(0, user="u", client_id="c", amount=5000) > 0
    rates.take_back(0, user="u", client_id="c", amount=5000)
    assert rates.record(0, user="u", client_id="c", amount=1000) == 0


def test_one_answer_may_have_what_the_full_windows_allow() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 100.0}})
    assert rates.most_in_windows(user="u", client_id="c") == 1000.0
    assert rates.most_in_windows(user="u", client_id="d") is None


def test_time_quotas_throttle_no_client_longer_than_their_maximum() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 1.0}}, throttle_ms_max=1000)
    assert rates.record(0, user="u", client_id="c", amount=1e6) == 1000


def test_the_average_throttle_time_is_over_requests() -> None:
    rates = _rates({((CLIENT_ID, "c"),): {KEY: 100.0}})
    rates.record(0, user="u", client_id="c", amount=1000)
    throttle_time_ms = rates.record(0, user="u", client_id="c", amount=500)
    ((user, client_id, share),) = rates.shares()
    assert (user, client_id) == ("", "c")
    assert share.throttle_ms_average(0) == throttle_time_ms / 2
    assert share.throttle_ms_average(60_000) == 0


def test_shares_without_use_for_an_hour_are_forgotten() -> None:
    rates = _rates({((CLIENT_ID, None),): {KEY: 100.0}})
    rates.record(0, user="u", client_id="one", amount=1)
    rates.record(3_600_000, user="u", client_id="two", amount=1)
    assert [client_id for _, client_id, _ in rates.shares()] == ["two"]


def _mutations(quota: float) -> MutationQuotas:
    quotas = MutationQuotas("controller_mutation_rate", samples=11, window_ms=1000)
    quotas.take({((CLIENT_ID, "c"),): {"controller_mutation_rate": quota}})
    return quotas


def _permits(quotas: MutationQuotas, now_ms: float, *, is_strict: bool = True) -> MutationPermits:
    return MutationPermits(quotas.share(now_ms, user="u", client_id="c"), is_strict=is_strict, now_ms=now_ms)


def test_a_burst_of_mutations_is_taken_whole_and_the_next_one_is_refused_until_the_debt_is_paid() -> None:
    quotas = _mutations(2.0)
    first = _permits(quotas, 0)
    assert first.take(30)  # the bucket holds 22
    assert first.throttle_time_ms == 0
    refused = _permits(quotas, 0)
    assert not refused.take(1)
    assert refused.throttle_time_ms == 4000
    assert not _permits(quotas, 3999).take(1)
    assert _permits(quotas, 4001).take(1)


def test_older_clients_are_throttled_and_not_refused() -> None:
    quotas = _mutations(2.0)
    permits = _permits(quotas, 0, is_strict=False)
    assert permits.take(30)
    assert permits.throttle_time_ms == 4000


def test_a_client_without_a_mutation_quota_is_free() -> None:
    permits = MutationPermits(_mutations(1.0).share(0, user="u", client_id="x"), is_strict=True, now_ms=0)
    assert permits.take(1_000_000)
    assert permits.throttle_time_ms == 0


def _connections(quotas: AnyQuotas) -> ConnectionRates:
    rates = ConnectionRates(samples=11, window_ms=1000)
    rates.take(quotas)
    return rates


def test_an_address_above_its_rate_is_held_and_others_are_not() -> None:
    rates = _connections({((IP, "10.0.0.1"),): {"connection_creation_rate": 1.0}})
    assert all(rates.came_from(0, "10.0.0.1") == 0 for _ in range(10))
    assert rates.came_from(0, "10.0.0.1") == 1000
    assert all(rates.came_from(0, "10.0.0.2") == 0 for _ in range(100))


def test_refused_connections_do_not_count_against_the_address() -> None:
    rates = _connections({((IP, None),): {"connection_creation_rate": 1.0}})
    welcome = sum(rates.came_from(now_ms, "10.0.0.1") == 0 for now_ms in range(0, 60_000, 50))
    assert welcome == pytest.approx(60, abs=12)


def test_an_addresss_own_rate_goes_before_the_default() -> None:
    quotas = {
        ((IP, None),): {"connection_creation_rate": 1.0},
        ((IP, "10.0.0.1"),): {"connection_creation_rate": 9.0},
    }
    rates = _connections(quotas)
    assert rates.bound_of("10.0.0.1") == 9.0
    assert rates.bound_of("10.0.0.2") == 1.0


def test_the_whole_brokers_rate_pauses_accepting() -> None:
    rates = _connections({})
    assert all(rates.came(0, 5) == 0 for _ in range(50))
    assert 0 < rates.came(0, 5) <= 1000
