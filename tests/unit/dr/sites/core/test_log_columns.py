"""Logs in columns lead to the same evidence, comparisons and accounts as one position for each
partition.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from dr.failover.core.completion import absent, completion
from dr.failover.core.drain import Drain
from dr.failover.core.known_source import KnownSource
from dr.failover.core.loss_counting import account
from dr.failover.core.promotion import has_leaders_above_floor, is_promoted, kept_ends, waiting_for_writes
from dr.failover.core.steps import FailoverPolicy
from dr.sites.core.divergence import diverged_copies
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.log_columns import LogsInColumns, PartitionOrders, log_ends, logs_of, safe_ends, thinned_logs
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from tests.unit.dr.core.positions_in_columns import Positions, described, in_columns
from wire.batches.log_histories import EpochStart
from wire.control.broker_pb2 import PartitionColumns
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.partition_columns_reader import MalformedColumns
from wire.protocol.ids import UNKNOWN, TopicPartition

FLOOR = 4
SEEDS = range(150)


def site_logs(chance: random.Random, like: Positions | None = None) -> dict[TopicPartition, PartitionPosition]:
    """A few logs; those of `like`, most of them the same."""
    if like is not None:
        found = {key: one for key, one in like.items() if chance.random() < 0.95}
        changed = [key for key in found if chance.random() < chance.choice((0.0, 0.3))]
        return found | {key: position(chance) for key in changed}
    keys = [TopicPartition(topic, index) for topic in ("u", "t") for index in range(chance.randrange(4))]
    return {key: position(chance) for key in keys}


def position(chance: random.Random) -> PartitionPosition:
    start, records = chance.choice((0, 0, 3)), chance.randrange(9)
    starts = sorted(chance.sample(range(start, start + records), min(records, chance.randrange(1, 3))))
    epochs = tuple(
        EpochStart(epoch, first) for epoch, first in zip(sorted(chance.sample(range(6), 2)), starts, strict=False)
    )
    return PartitionPosition(
        leader_epoch=chance.randrange(6),
        last_log_epoch=epochs[-1].epoch if epochs else UNKNOWN,
        log_start_offset=start,
        log_end_offset=start + records,
        high_watermark=chance.choice((UNKNOWN, start, start + records, start + records)),
        is_writable=chance.random() < 0.3,
        has_markers=chance.random() < 0.3,
        thinned_to=chance.choice((start, start, start + records)),
        source_high_watermark=chance.choice((UNKNOWN, start + records, start + records + 2)),
        source_seen_at_ms=chance.choice((UNKNOWN, 500)),
        max_timestamp_ms=chance.choice((UNKNOWN, 77)),
        epochs=epochs,
    )


def conclusions(looks: list[tuple[Positions, Positions | None]], *, is_fenced: bool, seed: int) -> list[Any]:
    """Everything that a failover concludes from looks at the target and the source."""
    chance = random.Random(seed)
    record = LinkRecord(
        name="a-b", epoch=2, source_site="a", target_site="b", active_site="a", leader_epoch_floor=FLOOR
    )
    if is_fenced:
        record.phase = LinkPhase.FENCED
    unprotected = (UnprotectedTopic(topic="u", partitions=(0,), reason="gone"),) if chance.random() < 0.2 else ()
    leaderless = frozenset({TopicPartition("t", 9)}) if chance.random() < 0.2 else frozenset()
    known, found = KnownSource(to_site="b"), list[Any]()
    drain = Drain(known, FailoverPolicy(), settled_ends=chance.choice((None, {TopicPartition("t", 0): 5})))
    for number, (at_target, at_source) in enumerate(looks):
        parts: dict[str, Any] = {"record": record, "groups": SiteGroups(), "enforced_epochs": {1: 2}}
        target = SiteEvidence(
            site="b", seen_at_ms=900, partitions=at_target, unprotected=unprotected, leaderless=leaderless, **parts
        )
        source = None if at_source is None else SiteEvidence(site="a", seen_at_ms=1000, partitions=at_source, **parts)
        evidence = Evidence(link="a-b", target_site="b", target=target, source=source)
        known.observe_fence(evidence)
        if source is not None:
            known.remember(source)
        drain.observe_target(target, number)
        kept, unclear = kept_ends(target, floor=FLOOR, before=drain.drained_ends)
        lacking = completion(evidence, known)
        differences = known.differences(target, source_site="a", is_source_fresh=chance.random() < 0.5, ends=kept)
        diverged = diverged_copies(target.copies, at_source or {})
        found += [
            diverged,
            (dict(lacking.remaining), lacking.is_exact, lacking.is_complete, lacking.problem),
            (absent(evidence, known), known.bypass, known.is_unknown, evidence.highest_leader_epoch),
            (dict(differences.diverged), dict(differences.unproven)),
            (dict(kept), sorted(unclear), dict(drain.drained_ends), dict(known.ends), dict(known.exact_ends)),
            (is_promoted(target), has_leaders_above_floor(target), waiting_for_writes(target)),
            (
                target.has_writable,
                target.is_fenced,
                target.writable,
                dict(safe_ends(at_target)),
                dict(log_ends(at_target)),
            ),
            (drain.is_over(evidence, lacking, 5),),
            account(
                link="a-b",
                epoch=2,
                from_site="a",
                to_site="b",
                kept=kept,
                target=at_target,
                source=known.ends,
                now_ms=2000,
                unprotected=unprotected,
                differences=differences,
            ),
        ]
    return found


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_failover_concludes_the_same_from_columns(seed: int, is_fenced: bool) -> None:
    chance = random.Random(seed)
    source = site_logs(chance)
    looks: list[tuple[Positions, Positions | None]] = []
    for _ in range(3):
        is_silent = chance.random() < 0.3
        looks.append((site_logs(chance, source), None if is_silent else source))
        if chance.random() < 0.5:
            source = site_logs(chance, source)
    orders = PartitionOrders()
    columns: list[tuple[Positions, Positions | None]] = [
        (in_columns(target, orders), None if known is None else in_columns(known, orders)) for target, known in looks
    ]
    expected = conclusions(looks, is_fenced=is_fenced, seed=seed)
    assert conclusions(columns, is_fenced=is_fenced, seed=seed) == expected


def test_the_fast_ways_are_taken_when_both_sites_have_the_same_partitions() -> None:
    orders = PartitionOrders()
    logs = {TopicPartition("t", index): position(random.Random(index)) for index in range(5)}
    other = dict(reversed(logs.items()))
    assert in_columns(logs, orders).order is in_columns(other, orders).order
    assert in_columns(logs, orders).order is in_columns(logs, orders).order
    del other[TopicPartition("t", 3)]
    assert in_columns(logs, orders).order is not in_columns(other, orders).order


@pytest.mark.parametrize("seed", range(30))
def test_columns_of_several_brokers_are_one_mapping(seed: int) -> None:
    chance = random.Random(seed)
    parts = [site_logs(chance), site_logs(chance), {}]
    chance.shuffle(parts)
    expected: dict[TopicPartition, PartitionPosition] = {}
    for part in parts:
        expected |= part
    found = logs_of([described(part) for part in parts], PartitionOrders())
    assert dict(found) == dict(found.items()) == expected
    assert list(found) == sorted(expected)
    assert [found[key] for key in expected] == list(expected.values())
    assert TopicPartition("t", 99) not in found
    assert found.get(TopicPartition("t", 99)) is None


def test_many_layouts_are_not_remembered_for_ever() -> None:
    orders = PartitionOrders()
    for count in range(40):
        logs = {TopicPartition("t", index): position(random.Random(index)) for index in range(count)}
        assert dict(in_columns(logs, orders)) == logs
    assert len(orders) < 10


@pytest.mark.parametrize(
    "changed",
    [
        {"leader_epoch": b""},
        {"flags": bytes(7)},
        {"flags": bytes(24)},
        {"partition_count": 2_000_000},
        {"partition_count": -1},
        {"epoch_count": (1 << 40).to_bytes(8, "little")},
        {"topics": []},
        {"epoch_count": bytes(16)[:8]},
        {"epochs": bytes(24)},
        {"topic": b"\xff" * 16},
    ],
)
def test_columns_that_do_not_belong_together_are_refused(changed: dict[str, Any]) -> None:
    logs = {
        TopicPartition("t", index): replace(position(random.Random(3)), epochs=(EpochStart(1, 0),))
        for index in range(2)
    }
    message = described(logs)
    for name in changed:
        message.ClearField(name)
    message.MergeFrom(PartitionColumns(**changed))
    with pytest.raises(MalformedColumns):
        logs_of([message], PartitionOrders())


def test_logs_in_columns_are_made_into_positions_once() -> None:
    logs = in_columns({TopicPartition("t", 0): position(random.Random(1))}, PartitionOrders())
    assert isinstance(logs, LogsInColumns)
    assert next(iter(logs.values())) is next(iter(logs.values()))
    assert "PartitionPosition" in repr(logs)


@pytest.mark.parametrize("seed", range(20))
def test_columns_name_the_logs_that_are_compacted(seed: int) -> None:
    positions = site_logs(random.Random(seed))
    columns = in_columns(positions, PartitionOrders())
    assert thinned_logs(columns) == sorted(thinned_logs(positions))


def test_a_broker_of_an_earlier_release_reports_no_compaction() -> None:
    message = described({TopicPartition("t", index): position(random.Random(index)) for index in range(3)})
    message.ClearField("thinned_to")
    assert [one.thinned_to for one in logs_of([message], PartitionOrders()).values()] == [0, 0, 0]
