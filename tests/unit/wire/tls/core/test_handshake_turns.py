"""The next handshake, and the one that ends when there are too many."""

from __future__ import annotations

import pytest

from wire.tls.core.handshake_turns import HandshakeTurns


def turns(*begun: tuple[str, str]) -> HandshakeTurns[str]:
    """Handshakes that have begun in this order, each with its network."""
    made: HandshakeTurns[str] = HandshakeTurns()
    for entry, network in begun:
        made.add(entry, network)
    return made


STORM = (("s1", "storm"), ("s2", "storm"), ("s3", "storm"))


def test_networks_take_turns_however_many_handshakes_one_has() -> None:
    made = turns(*STORM, ("good", "other"))
    for entry in ("s1", "s2", "s3", "good"):
        made.ready(entry)
    assert [made.next() for _ in range(5)] == ["s1", "good", "s2", "s3", None]


def test_a_handshake_that_is_over_gets_no_turn() -> None:
    made = turns(*STORM)
    made.ready("s1")
    made.ready("s2")
    made.discard("s1")
    made.discard("s1")
    assert "s1" not in made
    assert made.next() == "s2"
    made.discard("s2")
    assert made.next() is None
    assert made.all == ("s3",)


@pytest.mark.parametrize("order", [(("good", "other"), *STORM), (*STORM, ("good", "other"))])
def test_the_network_with_most_handshakes_loses_its_oldest_one(order: tuple[tuple[str, str], ...]) -> None:
    assert turns(*order).surplus() == "s1"


def test_one_that_waits_for_its_client_ends_before_one_that_waits_for_its_turn() -> None:
    made = turns(*STORM)
    made.ready("s1")
    assert made.surplus() == "s2"
    assert made.next() == "s1"
    assert made.surplus() == "s2"
    made.waits_for_client("s1")
    assert made.surplus() == "s1"


def test_the_newest_ends_where_none_waits_for_its_client() -> None:
    made = turns(*STORM, ("good", "other"))
    for entry in ("s1", "s2", "s3"):
        made.ready(entry)
    assert made.surplus() == "s3"


def test_of_networks_with_one_handshake_each_the_oldest_that_waits_for_its_client_ends() -> None:
    made = turns(("a", "1"), ("b", "2"), ("c", "3"))
    made.ready("a")
    assert made.surplus() == "b"
