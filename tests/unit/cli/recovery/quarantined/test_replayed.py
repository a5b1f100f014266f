"""The records that the active site already has, by the headers of replayed records."""

from __future__ import annotations

import pytest

from cli.recovery.quarantined.replayed import Origin, Replayed

ORIGIN = Origin("a", "orders", "1f3c", 3, 65_536, 1_200)


def test_a_record_is_known_by_its_headers_among_those_of_the_application() -> None:
    headers = [("trace", b"1"), *ORIGIN.headers("0.cut.@1f3c-3-2-1200-1300-65536"), ("empty", None)]
    assert Origin.all_of(headers) == [ORIGIN]


def test_a_record_that_was_replayed_twice_is_known_by_both_origins() -> None:
    """It was removed again after its first replay: its second headers are in front of the first."""
    again = ORIGIN._replace(site="b", leader_epoch=131_072, offset=40)
    headers = [*again.headers("second"), *ORIGIN.headers("first"), ("trace", b"1")]
    assert Origin.all_of(headers) == [again, ORIGIN]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("trace", b"1")], id="none"),
        pytest.param(ORIGIN.headers("entry")[1:], id="one is missing"),
        pytest.param([*ORIGIN.headers("entry")[:5], ("antipode.origin.offset", b"x")], id="no number"),
        pytest.param([*ORIGIN.headers("entry")[:5], ("antipode.origin.offset", None)], id="null"),
    ],
)
def test_other_records_are_not_taken_for_replayed_ones(headers: list[tuple[str, bytes | None]]) -> None:
    assert Origin.all_of(headers) == []


def test_a_record_is_there_once_its_origin_was_seen() -> None:
    known = Replayed()
    assert not known.has(ORIGIN)
    known.add(ORIGIN)
    assert known.has(ORIGIN)
    assert known.has(ORIGIN._replace(site=""))  # two brokers may keep the same record


@pytest.mark.parametrize(
    "other",
    [
        ORIGIN._replace(offset=1_201),
        ORIGIN._replace(leader_epoch=65_537),
        ORIGIN._replace(partition=4),
        ORIGIN._replace(topic="flights"),
        ORIGIN._replace(topic_id="2a2a"),
    ],
)
def test_another_record_is_not(other: Origin) -> None:
    known = Replayed()
    known.add(ORIGIN)
    assert not known.has(other)


def test_where_an_entry_does_not_know_the_topics_id_its_name_decides() -> None:
    known = Replayed()
    known.add(ORIGIN)
    assert known.has(ORIGIN._replace(topic_id=""))
    nameless = Replayed()
    nameless.add(ORIGIN._replace(topic_id=""))
    assert nameless.has(ORIGIN)
