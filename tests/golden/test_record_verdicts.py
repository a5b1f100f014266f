"""The log's verdict on batches with a right checksum and wrong insides, held against Apache Kafka's
on the same bytes.

Kafka's verdicts are golden data; `python -m tests.golden.records` asks Kafka again. Differences
that are meant are named there, and every other one fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.log.core.batch_checks import BatchRejected
from broker.log.partition_log import PartitionLog
from broker.settings.core.topic_configs import LogConfig
from tests.golden.records import JUDGED, STRICTER, codes_for, stored_header
from tests.support.disks.logs_on_disk import open_log
from tests.support.disks.mutated_batches import CASES, NOW_MS, TOPICS, Case
from wire.batches.record_batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, read_header
from wire.batches.records import decode_records


def _log(tmp_path: Path, case: Case) -> PartitionLog:
    config = LogConfig.from_topic_configs({"message.max.bytes": "10000000"}, TOPICS[case.topic])
    return open_log(tmp_path, config=config)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_refused_or_stored_as_apache_kafka_does(tmp_path: Path, name: str) -> None:
    case, judged = CASES[name], JUDGED[name]
    log = _log(tmp_path, case)
    code, failed_indexes = _append(log, case)
    assert code in codes_for(name)
    if code:
        assert log.log_end_offset == 0
        if code == judged["error_code"] and name != "claims-log-append-time-on-its-topic":
            assert failed_indexes == [index for index, _ in judged["record_errors"]]
    else:
        _check_stored(log, case, judged)


def _append(log: PartitionLog, case: Case) -> tuple[int, list[int]]:
    """The error code that the producer gets, 0 for none, and the records that it names."""
    try:
        log.append_as_leader(case.records, leader_epoch=0, now_ms=NOW_MS)
    except BatchRejected as refusal:
        return refusal.code, [error.batch_index for error in refusal.record_errors]
    return 0, []


def _check_stored(log: PartitionLog, case: Case, judged: Mapping[str, Any]) -> None:
    with log.read(0, max_bytes=100_000_000) as found:
        stored = found.read_bytes()
    header = read_header(stored)
    fields = stored_header(header, None)
    expected = dict(judged["stored"])
    is_same = expected.pop("same_records")
    if header.attributes & LOG_APPEND_TIME_BIT:
        expected["max_timestamp"] = NOW_MS
    if not is_same:
        # records that are compressed anew keep their base timestamp here; Kafka takes the first
        # record's
        expected["base_timestamp"] = fields["base_timestamp"]
        assert list(decode_records(stored)) == list(decode_records(case.records))
    else:
        assert stored[HEADER_SIZE:] == case.records[HEADER_SIZE:]
    assert log.log_end_offset == judged["log_end_offset"]
    if case.is_near_now:
        assert fields["record_count"] == expected["record_count"]
        assert fields["max_timestamp"] == expected["max_timestamp"]
    else:
        assert fields == expected


def test_every_batch_that_is_refused_beyond_kafka_is_named() -> None:
    """The name of a difference that has ended must be removed."""
    assert set(STRICTER) <= set(CASES)
    assert {name for name in STRICTER if JUDGED[name]["error_code"] != 0} == set()
    assert set(JUDGED) == set(CASES)
