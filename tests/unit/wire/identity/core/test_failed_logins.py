"""The limit of failed logins of one address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wire.identity.core.failed_logins import FailedLogins

WINDOW_MS = 1000.0


def limits(failures_max: int = 3, addresses_max: int = 100) -> FailedLogins:
    return FailedLogins(failures_max=failures_max, window_ms=WINDOW_MS, addresses_max=addresses_max)


def test_an_address_is_refused_for_a_while_after_one_failure_too_many() -> None:
    failed = limits()
    assert [failed.record(now_ms, "10.0.0.1") for now_ms in (0, 1, 2, 3, 4)] == [False, False, False, True, False]
    assert failed.is_refused(4 + WINDOW_MS - 1, "10.0.0.1")
    assert not failed.is_refused(4 + WINDOW_MS, "10.0.0.1")
    assert not failed.is_refused(4, "10.0.0.2")
    assert failed.refused_count(4) == 1


def test_failures_that_are_far_apart_refuse_nothing() -> None:
    failed = limits()
    assert not any(failed.record(number * WINDOW_MS / 2, "10.0.0.1") for number in range(50))


def test_a_new_window_ends_no_refusal() -> None:
    failed = limits()
    for now_ms in (0, 900, 901, 902):
        failed.record(now_ms, "10.0.0.1")
    failed.record(1100, "10.0.0.1")
    assert failed.is_refused(1800, "10.0.0.1")


def test_zero_means_no_limit() -> None:
    failed = limits(failures_max=0)
    assert not any(failed.record(0, "10.0.0.1") for _ in range(1000))
    assert not failed.is_refused(0, "10.0.0.1")


def test_one_network_of_ipv6_is_one_address_and_mapped_addresses_are_those_of_ipv4() -> None:
    failed = limits(failures_max=1)
    failed.record(0, "2001:db8::1")
    failed.record(0, "2001:db8::2")
    assert failed.is_refused(0, "2001:db8::3")
    assert not failed.is_refused(0, "2001:db8:0:1::3")
    for address in ("::ffff:10.0.0.1", "10.0.0.1"):
        failed.record(0, address)
    assert failed.is_refused(0, "10.0.0.1")
    for _ in range(2):
        failed.record(0, "fe80::1%eth0")
    assert failed.is_refused(0, "fe80::2%eth1")


def test_the_address_that_failed_longest_ago_is_forgotten_first() -> None:
    failed = limits(failures_max=1, addresses_max=2)
    for address in ("a", "b", "a", "c"):
        failed.record(0, address)
    assert (len(failed), failed.is_refused(0, "a")) == (2, True)
    for _ in range(2):
        failed.record(0, "b")
    assert failed.is_refused(0, "b")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 400))))
def test_an_address_is_refused_only_after_too_many_failures_of_its_own(steps: list[tuple[str, float]]) -> None:
    failed, now_ms, history = limits(addresses_max=3), 0.0, list[tuple[str, float]]()
    for address, pause_ms in steps:
        now_ms += pause_ms
        failed.record(now_ms, address)
        history.append((address, now_ms))
        assert len(failed) <= 3
        for other in "abcd":
            recent = [at for name, at in history if name == other and at > now_ms - 2 * WINDOW_MS]
            assert len(recent) > 3 or not failed.is_refused(now_ms, other)
