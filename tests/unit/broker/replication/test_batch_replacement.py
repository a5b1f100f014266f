"""A damaged batch gets its bytes back from another copy of the log: only where the checksum proves
that they are its bytes, with the damaged ones in quarantine, and once.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.handlers.links import damaged_batches, replace_batches
from broker.log.log_state import CorruptBatch
from broker.log.segments.log_slice import LogSlice
from broker.replication.core.batch_replacement import Replacement, judge_replacement
from broker.replication.core.partition import Partition
from broker.replication.core.partition_state import ReplicaRole
from tests.support.disks.log_batches import batch
from tests.unit.broker.replication.test_quarantine_handlers import TOPIC_ID, doors_at
from wire.protocol.messages.damaged_batch_messages import BATCHES_MAX

LENGTH_AT, EPOCH_AT, CRC_AT, ATTRIBUTES_AT, BODY_AT = 11, 15, 17, 22, 63


def flipped(content: bytes, *positions: int) -> bytes:
    changed = bytearray(content)
    for position in positions:
        changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ((), Replacement.NOTHING),
        ((BODY_AT,), Replacement.WRITE),
        ((ATTRIBUTES_AT, BODY_AT), Replacement.WRITE),
        ((CRC_AT,), Replacement.WRITE),
        ((CRC_AT, BODY_AT), Replacement.REFUSE),
        ((EPOCH_AT,), Replacement.REFUSE),
        ((EPOCH_AT, BODY_AT), Replacement.REFUSE),
    ],
)
def test_a_batch_is_replaced_where_its_checksum_or_its_content_proves_it(
    positions: tuple[int, ...], expected: Replacement
) -> None:
    sound = batch([b"value"], base_offset=5, leader_epoch=2)
    judged = judge_replacement(flipped(sound, *positions), sound)
    assert judged.replacement is expected
    assert bool(judged.reason) == (expected is Replacement.REFUSE)


def test_the_offered_bytes_must_be_one_sound_batch_of_the_same_size() -> None:
    stored = flipped(batch([b"value"]), BODY_AT)
    for offered, said in (
        (stored, "does not fit its checksum"),
        (batch([b"value"]) * 2, "is 2 batches"),
        (b"\0" * 80, "is damaged"),
        (batch([b"longer value"]), "has 73 bytes, and the offered one 80"),
    ):
        judged = judge_replacement(stored, offered)
        assert judged.replacement is Replacement.REFUSE
        assert said in judged.reason


def damaged_doors(directory: Path, *positions: int, **bounds: int) -> tuple[Any, bytes, bytes]:
    """A broker whose second batch of three is damaged, the whole log's sound bytes, and those of
    the batch.
    """
    doors = doors_at(directory, b"a", b"b", b"c", **bounds)
    doors.replicas.get = lambda _image, topic, index: doors.replicas.find(topic, index)
    (segment,) = directory.glob("t-0/*.log")
    log = doors.replicas.get(None, "t", 0).log
    sound = segment.read_bytes()[: log.size_bytes]
    size = len(sound) // 3
    with segment.open("r+b") as file:
        for position in positions:
            file.seek(size + position)
            file.write(bytes([sound[size + position] ^ 1]))
    log.corrupt_batches = (CorruptBatch(1, 1, "its checksum does not fit its bytes"),)
    return doors, sound, sound[size : 2 * size]


async def replace(doors: Any, records: bytes, topic_id: uuid.UUID = TOPIC_ID) -> Any:
    partition = SimpleNamespace(topic="t", topic_id=topic_id, index=0, records=records)
    request = SimpleNamespace(reason="a bit changed", partitions=(partition,))
    (outcome,) = (await replace_batches.handle(request, None, doors)).outcomes  # type: ignore[arg-type]
    return outcome


def content(directory: Path) -> bytes:
    (segment,) = directory.glob("t-0/*.log")
    return segment.read_bytes()


@pytest.mark.parametrize("position", [BODY_AT, CRC_AT])
async def test_the_log_has_its_bytes_again_and_the_damaged_ones_are_in_quarantine(
    tmp_path: Path, position: int
) -> None:
    doors, sound, offered = damaged_doors(tmp_path, position)
    done = await replace(doors, offered)
    assert (done.error_code, len(done.entries)) == (ErrorCode.none, 1)
    assert content(tmp_path).startswith(sound)
    assert doors.replicas.get(None, "t", 0).log.corrupt_batches == ()
    quarantine = doors.replicas.cuts.quarantine
    (entry,) = quarantine.entries([str(tmp_path)])
    assert (entry.kind, entry.first_offset, entry.end_offset, entry.reason) == ("damaged", 1, 2, "a bit changed")
    assert quarantine.read([str(tmp_path)], entry.name, 0) == flipped(offered, position)
    again = await replace(doors, offered)
    assert (again.error_code, again.entries) == (ErrorCode.none, ())


@pytest.mark.parametrize("step", ["overwrite", "sync"])
async def test_a_replacement_that_was_interrupted_is_made_whole_by_the_next(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors, sound, offered = damaged_doors(tmp_path, BODY_AT)

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(LogSlice, step, interrupt)
        with pytest.raises(Interrupted):
            await replace(doors, offered)
    assert (await replace(doors, offered)).error_code is ErrorCode.none
    assert content(tmp_path).startswith(sound)
    assert len(doors.replicas.cuts.quarantine.entries([str(tmp_path)])) == 1


async def test_an_unproven_replacement_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    doors, sound, offered = damaged_doors(tmp_path, BODY_AT, CRC_AT)
    before = content(tmp_path)
    other_topic = await replace(doors, offered, topic_id=uuid.UUID(int=8))
    beyond = await replace(doors, batch([b"x"], base_offset=9))
    for outcome, code, said in (
        (await replace(doors, offered), ErrorCode.invalid_record, "neither the checksum nor the content"),
        (await replace(doors, sound[: len(offered)]), ErrorCode.none, None),
        (await replace(doors, b"\1" * 70), ErrorCode.invalid_record, "are not a batch"),
        (beyond, ErrorCode.invalid_record, "has no batch at offset 9"),
        (other_topic, ErrorCode.inconsistent_topic_id, "another topic id"),
    ):
        assert outcome.error_code is code
        assert (said or "") in (outcome.error_message or "")
    assert content(tmp_path) == before


async def test_damaged_bytes_that_do_not_fit_the_quarantine_stay_where_they_are(tmp_path: Path) -> None:
    doors, _, offered = damaged_doors(tmp_path, BODY_AT, bytes_max=10)
    before = content(tmp_path)
    assert (await replace(doors, offered)).error_code is ErrorCode.policy_violation
    assert content(tmp_path) == before


async def test_the_damage_of_a_replica_is_named_with_its_role_and_healed_at_a_follower(tmp_path: Path) -> None:
    doors, sound, offered = damaged_doors(tmp_path, BODY_AT)
    hosted = doors.replicas.get(None, "t", 0)
    hosted.state = Partition(node_id=2, role=ReplicaRole.FOLLOWER)
    named = SimpleNamespace(replicas=[hosted])
    (found,) = (await damaged_batches.handle(None, None, named)).batches  # type: ignore[arg-type]
    assert (found.topic, found.index, found.is_leader) == ("t", 0, False)
    assert (found.base_offset, found.last_offset, found.reason) == (1, 1, "its checksum does not fit its bytes")
    assert (await replace(doors, offered)).error_code is ErrorCode.none
    assert content(tmp_path).startswith(sound)
    after = await damaged_batches.handle(None, None, named)  # type: ignore[arg-type]
    assert (after.count, after.batches) == (0, ())
    hosted.state = Partition(node_id=2)
    assert (await replace(doors, offered)).error_code is ErrorCode.not_leader_or_follower


async def test_an_answer_about_much_damage_counts_what_it_leaves_out(tmp_path: Path) -> None:
    doors, *_ = damaged_doors(tmp_path)
    hosted = doors.replicas.get(None, "t", 0)
    hosted.log.corrupt_batches = (CorruptBatch(0, 0, "one"),) * (BATCHES_MAX + 5)
    answer = await damaged_batches.handle(None, None, SimpleNamespace(replicas=[hosted]))  # type: ignore[arg-type]
    assert (answer.count, len(answer.batches)) == (BATCHES_MAX + 5, BATCHES_MAX)


async def test_a_finding_that_the_log_does_not_hold_is_not_named(tmp_path: Path) -> None:
    doors, *_ = damaged_doors(tmp_path)
    hosted = doors.replicas.get(None, "t", 0)
    hosted.log.corrupt_batches = (CorruptBatch(3, 3, "was truncated"),)
    answer = await damaged_batches.handle(None, None, SimpleNamespace(replicas=[hosted]))  # type: ignore[arg-type]
    assert answer.count == 0
