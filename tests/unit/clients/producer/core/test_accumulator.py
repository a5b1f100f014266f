"""Batches by size and time, one in flight a partition, sequences that have no gap (rows P-11, P-12,
P-15).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from clients.producer.core.accumulator import NO_IDENTITY, Accumulator, ProducerIdentity
from clients.producer.core.deliveries import Sequences, Verdict, judge
from wire.batches.record_batch import Compression
from wire.batches.records import Record, decode_records

PLACE = ("t", 0)


def filled(count: int, *, records_max: int = 10, bytes_max: int = 10**6, linger_ms: float = 5) -> Accumulator[int]:
    accumulator: Accumulator[int] = Accumulator(
        batch_bytes_max=bytes_max, batch_records_max=records_max, linger_ms=linger_ms
    )
    for number in range(count):
        add(accumulator, number)
    return accumulator


def add(accumulator: Accumulator[int], number: int, now_ms: float = 0) -> None:
    accumulator.append(PLACE, Record(None, b"%d" % number, number), number, queued_bytes=1, now_ms=now_ms)


def test_a_full_batch_leaves_at_once_and_the_rest_after_the_linger_time() -> None:
    accumulator = filled(11)
    (full,) = accumulator.ready(0)
    assert full.tokens == list(range(10))
    accumulator.begin(full)
    accumulator.finish(full)
    assert list(accumulator.ready(4)) == []
    assert accumulator.next_due_ms(4) == 5
    (rest,) = accumulator.ready(5)
    assert rest.tokens == [10]


def test_a_batch_is_closed_before_it_grows_beyond_its_bytes() -> None:
    accumulator = filled(40, records_max=1000, bytes_max=200)
    sizes = []
    while not accumulator.is_empty:
        (batch,) = accumulator.ready(10)
        accumulator.begin(batch)
        accumulator.finish(batch)
        sizes.append(len(batch.seal(Compression.NONE)))
    assert max(sizes) <= 200 + 10
    assert len(sizes) > 2


def test_the_next_batch_waits_for_the_one_in_flight() -> None:
    accumulator = filled(20)
    (first,) = accumulator.ready(0)
    accumulator.begin(first)
    assert list(accumulator.ready(100)) == []
    accumulator.send_again(first, not_before_ms=200)
    assert list(accumulator.ready(199)) == []
    (again,) = accumulator.ready(200)
    assert again is first
    accumulator.begin(again)
    accumulator.finish(again)
    (second,) = accumulator.ready(200)
    assert second.tokens == list(range(10, 20))


def test_a_batch_that_has_waited_too_long_expires_but_not_one_in_flight() -> None:
    accumulator = filled(20)
    (first,) = accumulator.ready(0)
    accumulator.begin(first)
    assert [batch.tokens for batch in accumulator.expire(1)] == [list(range(10, 20))]
    assert accumulator.tokens() == list(range(10))
    assert accumulator.drop_all() == [first]
    assert accumulator.is_empty


def test_a_batch_keeps_its_sequence_for_all_attempts_and_the_next_continues_it() -> None:
    accumulator, sequences = filled(20), Sequences()
    sequences.renew(ProducerIdentity(7, 0))
    (first,) = accumulator.ready(0)
    for _ in range(3):
        sequences.stamp(first)
        accumulator.begin(first)
        assert first.base_sequence == 0
        accumulator.send_again(first, not_before_ms=0)
    assert sequences.is_over_with(first)
    accumulator.begin(first)
    accumulator.finish(first)
    (second,) = accumulator.ready(0)
    sequences.stamp(second)
    assert second.base_sequence == 10


def test_a_batch_that_was_never_sent_leaves_no_gap() -> None:
    accumulator, sequences = filled(1), Sequences()
    sequences.renew(ProducerIdentity(7, 0))
    (batch,) = accumulator.expire(1)
    assert not sequences.is_over_with(batch)
    assert batch.identity == NO_IDENTITY


def test_answers_mean_delivered_again_or_never() -> None:
    assert judge(ErrorCode.duplicate_sequence_number) is Verdict.DELIVERED
    assert judge(ErrorCode.not_leader_or_follower) is Verdict.SEND_AGAIN
    assert judge(ErrorCode.not_enough_replicas_after_append) is Verdict.SEND_AGAIN
    assert judge(ErrorCode.message_too_large) is Verdict.GIVE_UP
    assert judge(ErrorCode.out_of_order_sequence_number) is Verdict.GIVE_UP


steps = st.lists(st.sampled_from(["add", "send", "fail", "too large", "ok"]), max_size=200)


@given(steps)
def test_every_record_goes_out_once_in_order_whatever_fails(plan: list[str]) -> None:
    accumulator, done, added = filled(0, records_max=3), [], 0
    in_flight, queued_bytes = None, 0
    for step in [*plan, *["send", "ok"] * (len(plan) + 2)]:
        if step == "add":
            add(accumulator, added)
            added += 1
        elif step == "send" and in_flight is None:
            in_flight = next(iter(accumulator.ready(1000)), None)
            if in_flight is not None:
                assert [record.value for record in decode_records(in_flight.seal(Compression.NONE))] == [
                    b"%d" % number for number in in_flight.tokens
                ]
                accumulator.begin(in_flight)
        elif step in ("fail", "too large", "ok") and in_flight is not None:
            if step == "ok":
                accumulator.finish(in_flight)
                done += in_flight.tokens
                queued_bytes += in_flight.queued_bytes
            elif step == "fail" or not accumulator.split(in_flight):
                accumulator.send_again(in_flight, not_before_ms=0)
            in_flight = None
    assert done == list(range(added))
    assert queued_bytes == added
    assert accumulator.is_empty
