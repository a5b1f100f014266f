"""The checkers on hand-made bad histories (A14): each must flag its own anomaly, and nothing on a
good one.
"""

from __future__ import annotations

import math

from dr.drill.core import checkers
from dr.drill.core.history import Acknowledged, Delivered, Failed, LogRecord, read_lines, to_line
from wire.protocol.ids import TopicPartition

PLACE = TopicPartition("flights", 0)


def ack(number: int, offset: int, *, partition: int = 0, load: str = "p") -> Acknowledged:
    return Acknowledged(load, number, "flights", partition, offset, 1.0, 2.0)


def given(offset: int, value: str, *, member: str = "m", assignment: int = 1) -> Delivered:
    return Delivered(member, assignment, "flights", 0, offset, value, 3.0)


def log(*values: str, site: str = "b") -> list[LogRecord]:
    return [LogRecord(site, "flights", 0, offset, value) for offset, value in enumerate(values)]


def test_a14_a_good_history_is_not_flagged() -> None:
    acknowledged = [ack(0, 0), ack(1, 1), ack(2, 2)]
    delivered = [given(0, "p:0"), given(1, "p:1"), given(2, "p:2")]
    logs = log("p:0", "p:1", "p:2")
    assert not checkers.inconsistent_offsets(acknowledged, delivered, logs)
    assert not checkers.unseen(acknowledged, logs)
    assert not checkers.duplicates(logs)
    assert not checkers.skips(delivered, {PLACE: [0, 1, 2]})
    assert not checkers.steps_back(delivered)
    assert not checkers.send_order(acknowledged)
    assert checkers.redelivered(delivered) == 0
    assert not checkers.never_delivered(acknowledged, delivered)


def test_a1_one_offset_with_two_values_is_found_across_sites_and_clients() -> None:
    (across_sites,) = checkers.inconsistent_offsets([], [], log("p:0", site="a") + log("q:0", site="b"))
    assert across_sites == ("A1", PLACE, 0, "p:0 and q:0")
    (by_ack,) = checkers.inconsistent_offsets([ack(0, 0)], [given(0, "p:9")])
    assert by_ack.detail == "p:0 and p:9"


def test_a3_a_hole_below_the_end_and_a_missing_tail_are_unseen() -> None:
    acknowledged = [ack(0, 0), ack(1, 1), ack(2, 2), ack(3, 3)]
    read = [LogRecord("b", "flights", 0, 0, "p:0"), LogRecord("b", "flights", 0, 2, "p:2")]
    assert [anomaly.detail for anomaly in checkers.unseen(acknowledged, read)] == ["p:1", "p:3"]


def test_a4_a_value_at_two_offsets_is_a_duplicate_but_not_at_two_sites() -> None:
    (found,) = checkers.duplicates(log("p:0", "p:1", "p:0"))
    assert (found.offset, found.detail) == (0, "p:0 also at flights-0@2")
    assert not checkers.duplicates(log("p:0", site="a") + log("p:0", site="b"))


def test_a7_a_jump_over_records_is_a_skip_and_one_over_holes_is_not() -> None:
    delivered = [given(0, "p:0"), given(3, "p:3")]
    assert [anomaly.rule for anomaly in checkers.skips(delivered, {PLACE: [0, 1, 3]})] == ["A7"]
    assert not checkers.skips(delivered, {PLACE: [0, 3]})


def test_a7_and_a8_begin_anew_with_every_assignment() -> None:
    delivered = [given(5, "p:5"), given(2, "p:2", assignment=2), given(9, "p:9", assignment=3)]
    assert not checkers.steps_back(delivered)
    assert not checkers.skips(delivered, {PLACE: list(range(10))})


def test_a8_going_back_within_an_assignment_is_found() -> None:
    (found,) = checkers.steps_back([given(5, "p:5"), given(4, "p:4")])
    assert found.detail == "m went back to 4"


def test_a9_sends_that_change_places_are_found_whatever_the_order_of_acknowledgements() -> None:
    assert not checkers.send_order([ack(1, 1), ack(0, 0), ack(2, 0, partition=1)])
    (found,) = checkers.send_order([ack(0, 1), ack(1, 0)])
    assert found.detail == "p:1 is not after p:0@1"


def test_a13_redeliveries_are_counted_and_what_never_came_is_named() -> None:
    delivered = [given(0, "p:0"), given(0, "p:0", assignment=2)]
    assert checkers.redelivered(delivered) == 1
    assert [anomaly.detail for anomaly in checkers.never_delivered([ack(0, 0), ack(1, 1)], delivered)] == ["p:1"]


def test_a_history_survives_its_file_and_a_torn_last_line_is_left_out() -> None:
    facts = [ack(0, 0), given(0, "p:0"), Failed("p", 7, "flights", 5.0, "gave\tup")]
    lines = [to_line(fact) for fact in facts]
    read = list(read_lines([*lines, "A\tp\t9"]))
    assert read[:2] == facts[:2]
    assert read[2] == Failed("p", 7, "flights", 5.0, "gave up")
    assert len(read) == 3


def later(offset: int, value: str, at_ms: float) -> Delivered:
    return Delivered("m", 1, "flights", 0, offset, value, at_ms)


def test_a12_the_record_that_comes_last_after_a_fault_is_found() -> None:
    acknowledged = [ack(0, 0), ack(1, 1), ack(2, 0, partition=1)]
    other = Delivered("m", 1, "flights", 1, 0, "p:2", 9.0)
    delivered = [later(0, "p:0", 12.0), later(1, "p:1", 40.0), other]
    assert checkers.slowest_catch_up(acknowledged, delivered, [10.0]) == (10.0, PLACE, 1, 30.0)
    assert checkers.slowest_catch_up(acknowledged, delivered, [10.0, 2.0]) == (2.0, PLACE, 1, 38.0)


def test_a12_a_record_that_never_comes_takes_for_ever() -> None:
    acknowledged = [ack(0, 0), ack(1, 1)]
    found = checkers.slowest_catch_up(acknowledged, [later(0, "p:0", 30.0)], [10.0])
    assert found == (10.0, PLACE, 1, math.inf)


def test_a12_records_from_after_a_fault_do_not_count() -> None:
    assert checkers.slowest_catch_up([ack(0, 0)], [], [1.0]) is None
    assert checkers.slowest_catch_up([ack(0, 0)], [], []) is None
