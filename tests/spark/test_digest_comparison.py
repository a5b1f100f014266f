"""Reconciliation by the digests that brokers keep, without Spark: two real logs, compared by the
command that a person runs.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.spark.conftest import TwoLogs
from tests.support.disks.log_batches import batch as batch_of
from tests.support.embedded.commands import app

LEAF_OFFSETS = 4096
NOW_MS = round(time.time() * 1000)


def hundred(number: int, *, is_changed: bool = False) -> bytes:
    """A batch of a hundred records of today. A changed one has its size and another checksum."""
    text = b"x" if is_changed else b"y"
    return batch_of([b"%d-%d-" % (number, index) + text for index in range(100)], timestamp_ms=NOW_MS)


def compare(logs: TwoLogs, *options: str, exit_code: int) -> dict[str, Any]:
    """The report of `antipode reconcile --quick` without waiting for anything."""
    sites = ["--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--settle-timeout-ms", "0"]
    found = CliRunner().invoke(
        app, ["reconcile", "--quick", *sites, "--whitelist", logs.topic, "--output", "json", *options]
    )
    assert found.exit_code == exit_code, (found.output, found.exception)
    return dict(json.loads(found.stdout))


def differences(report: dict[str, Any]) -> list[tuple[str, int, int, str]]:
    """Kind, first and last offset, and detail of each difference."""
    return [
        (one["kind"], one["first_offset"], one["last_offset"], one["detail"])
        for partition in report["partitions"]
        for one in partition["differences"]
    ]


@pytest.mark.parametrize("batches", [0, 1, 41, 120])
def test_equal_logs_are_equal_up_to_their_last_record(logs: TwoLogs, batches: int) -> None:
    logs.append_both(*(hundred(number) for number in range(batches)))
    report = compare(logs, exit_code=0)
    assert report["verdict"] == "equal"
    (partition,) = report["partitions"]
    assert (partition["first_offset"], partition["end_offset"]) == (0, batches * 100)


@pytest.mark.parametrize("changed", [[0], [40], [41], [119], [0, 60, 119]])
def test_a_batch_that_differs_is_named_and_no_other(logs: TwoLogs, changed: list[int]) -> None:
    logs.append(logs.a, *(hundred(number) for number in range(120)))
    logs.append(logs.b, *(hundred(number, is_changed=number in changed) for number in range(120)))
    report = compare(logs, exit_code=1)
    assert differences(report) == [("diverged", number * 100, number * 100 + 99, "differ in crc") for number in changed]


def test_a_log_that_lacks_the_end_and_one_that_has_more_are_distinguished(logs: TwoLogs) -> None:
    logs.append_both(*(hundred(number) for number in range(50)))
    logs.append(logs.a, hundred(50))
    detail = "beyond the end of the other log"
    assert differences(compare(logs, exit_code=1)) == [("missing", 5000, 5099, detail)]
    logs.append(logs.b, hundred(50), hundred(51))
    assert differences(compare(logs, exit_code=1)) == [("extra", 5100, 5199, detail)]


def test_logs_with_nothing_in_common_are_named_as_ranges_within_bounds(logs: TwoLogs) -> None:
    logs.append(logs.a, *(hundred(number) for number in range(410)))
    logs.append(logs.b, *(hundred(number, is_changed=True) for number in range(410)))
    found = differences(compare(logs, exit_code=1))
    assert found[0][:3] == ("diverged", 0, 4 * LEAF_OFFSETS - 1 - (4 * LEAF_OFFSETS - 1) % 100 + 99)
    covered = {offset for _, first, last, _ in found for offset in range(first, last + 1)}
    # the last batch begins in the leaf before the last one
    assert covered == set(range(10 * LEAF_OFFSETS))


def test_a_partition_of_one_site_alone_is_named(logs: TwoLogs) -> None:
    logs.append(logs.a, hundred(0))
    logs.delete_topic(logs.b)
    report = compare(logs, exit_code=1)
    assert differences(report) == [("missing", 0, 99, "site target does not have the partition")]


def test_a_compacted_topic_is_said_to_be_not_compared(logs: TwoLogs) -> None:
    for broker in (logs.a, logs.b):
        logs.configure(broker, {"cleanup.policy": "compact"})
    report = compare(logs, exit_code=2)
    (topic,) = report["topics"]
    assert "compacted" in topic["not_compared"][0]


def test_requests_that_quick_cannot_serve_are_refused(logs: TwoLogs) -> None:
    found = CliRunner().invoke(app, ["reconcile", "--quick", "--limit", "1", "--source", "a:1", "--target", "b:1"])
    assert found.exit_code == 2
    assert "--limit" in found.output
    found = CliRunner().invoke(
        app,
        ["reconcile", "--quick", "--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--whitelist", "nothing"],
    )
    assert found.exit_code == 2
    assert "match no topic" in found.output
