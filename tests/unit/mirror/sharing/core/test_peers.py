"""The registered data of daemons that share a link, and the effects of a disagreement."""

from __future__ import annotations

import json

import pytest

from mirror.link.core.slots import SLOTS, decode_slots, encode_slots, slot_of
from mirror.sharing.core.peers import (
    VALUE_LENGTH_MAX,
    Daemon,
    DaemonShare,
    Disagreement,
    Untaken,
    disagreements,
    encode_daemon,
    parse_daemon,
    shortened,
    untaken,
)
from wire.protocol.ids import TopicPartition

ALL = frozenset(range(SLOTS))
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


def daemon(name: str, whitelist: str = ".*", mode: str = "translate", **settings: str) -> Daemon:
    return Daemon(
        name=name, settings={"link.mode": mode, "whitelist": whitelist, **settings}, topic_whitelist=(whitelist,)
    )


def test_the_registration_of_a_daemon_is_read_beside_its_slots() -> None:
    registered = daemon("m1:9391", blacklist="x")._replace(problem="billing: refused", topic_blacklist=("x",))
    metadata = encode_slots({3, 1}, daemon=encode_daemon(registered))
    assert parse_daemon(metadata, otherwise_named="m") == registered
    assert decode_slots(metadata) == {1, 3}


@pytest.mark.parametrize("data", [b"", b"no", b"[]", b'{"slots": [1]}', b'{"daemon": 5}', b'{"daemon": {"name": "x"}}'])
def test_a_daemon_that_registers_something_else_has_a_name_and_is_not_judged(data: bytes) -> None:
    found = parse_daemon(data, otherwise_named="member-7")
    assert found == Daemon(name="member-7")
    share = DaemonShare(found, ALL)
    assert disagreements(daemon("m1"), [share]) == ()
    assert untaken([ORDERS], [share]) == ()


def test_different_settings_are_reported_with_both_values_and_their_daemons() -> None:
    own = daemon("m1", "orders", groups=".*")
    others = [DaemonShare(daemon("m3", "orders", groups="x"), ALL), DaemonShare(daemon("m2", "payments"), ALL)]
    found = disagreements(own, others)
    assert found == (
        Disagreement("whitelist", "orders", "m2", "payments"),
        Disagreement("groups", ".*", "m3", "x"),
    )
    assert found[0].sentence == (
        "whitelist is orders here and payments at daemon m2; accepted is the same in the files of all daemons of the link"
    )


def test_daemons_that_agree_have_nothing_to_tell() -> None:
    assert disagreements(daemon("m1"), [DaemonShare(daemon("m2"), ALL)]) == ()


def test_a_partition_in_the_share_of_a_daemon_that_does_not_carry_it_has_no_owner() -> None:
    others = [
        DaemonShare(daemon("m2", "payments"), frozenset({slot_of(ORDERS), slot_of(PAYMENTS)})),
        DaemonShare(daemon("m3"), ALL - {slot_of(ORDERS), slot_of(PAYMENTS)}),
    ]
    found = untaken([PAYMENTS, ORDERS, TopicPartition("orders", 1)], others)
    assert found == (Untaken(ORDERS, "m2"),)
    assert found[0].sentence == "no daemon mirrors orders-0: it is assigned to daemon m2, whose filters exclude it"


def test_filters_of_an_exact_link_are_the_links_own() -> None:
    """Daemons that started before and after these changed have registered others, and follow the
    same.
    """
    assert untaken([ORDERS], [DaemonShare(daemon("m2", "payments", "exact"), ALL)]) == ()


def test_long_values_are_compared_by_a_digest() -> None:
    value = "x" * VALUE_LENGTH_MAX
    assert shortened(value) == value
    assert len(shortened(value * 100)) < VALUE_LENGTH_MAX + 40
    assert shortened(value + "a") == shortened(value + "a") != shortened(value + "b")
    assert json.loads(json.dumps(encode_daemon(daemon("m1", shortened(value + "a")))))
