"""R1 with two real sites: each defect that is planted in the log of the target is named by
`antipode reconcile`, by its offsets and by nothing else; `--watch` counts the same ones (R5). The
target's broker is stopped while its segment files are written, since no client could make it store
most of these defects.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from tests.spark.conftest import TwoLogs, fresh_logs
from tests.support.disks.log_batches import batch
from tests.support.embedded.commands import app
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.timeout(240)

REPOSITORY: Final = Path(__file__).parents[2]
NOW_MS: Final = round(time.time() * 1000)
BATCHES: Final = 6
RECORDS: Final = 10
"""Records of a batch: offsets 20 to 29 lie in batch 2."""

Found = list[tuple[str, int, int]]
Plant = Callable[[list[bytes]], list[bytes]]


def numbered(
    number: int, *, base_offset: int = -1, changes: Mapping[int, tuple[bytes, bytes, int]] | None = None
) -> bytes:
    """Batch `number` of the log; `changes` are key, value and timestamp of single offsets."""
    first = number * RECORDS
    kept = [(b"key-%d" % at, b"value-%d" % at, NOW_MS + at) for at in range(first, first + RECORDS)]
    records = [(changes or {}).get(first + index, record) for index, record in enumerate(kept)]
    return batch(
        [(key, value) for key, value, _ in records],
        base_offset=first if base_offset < 0 else base_offset,
        timestamps_ms=[timestamp_ms for _, _, timestamp_ms in records],
    )


def changed(key: bytes = b"key-24", value: bytes = b"value-24", timestamp_ms: int = NOW_MS + 24) -> Plant:
    """The record at offset 24 is another one, under a checksum that fits."""
    return lambda log: [*log[:2], numbered(2, changes={24: (key, value, timestamp_ms)}), *log[3:]]


def swapped_records(log: list[bytes]) -> list[bytes]:
    """The records at offsets 24 and 25 have changed places."""
    places = {24: (b"key-25", b"value-25", NOW_MS + 25), 25: (b"key-24", b"value-24", NOW_MS + 24)}
    return [*log[:2], numbered(2, changes=places), *log[3:]]


def flipped(log: list[bytes]) -> list[bytes]:
    """One bit of batch 2 has flipped on the disk."""
    rotten = bytearray(log[2])
    rotten[-3] ^= 0x10
    return [*log[:2], bytes(rotten), *log[3:]]


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, and the findings of a comparison by headers, of one that opens the batches, and of
    one by digests, which does not read bodies.
    """

    name: str
    plant: Plant
    by_headers: Found
    by_records: Found
    by_digests: Found


SHIFTED: Final[Found] = [("missing", 50, 50), ("diverged", 51, 59), ("extra", 60, 60)]
IN_BATCH_2: Final[Found] = [("diverged", 20, 29)]
DEFECTS: Final[Sequence[Defect]] = (
    Defect("none", lambda log: log, [], [], []),
    Defect(
        "missing",
        lambda log: [*log[:2], *log[3:]],
        *([("missing", 20, 29)],) * 3,
    ),
    Defect("twice", lambda log: [*log, numbered(2, base_offset=60)], *([("extra", 60, 69)],) * 3),
    Defect(
        "same-offsets-twice",
        lambda log: [*log[:3], log[2], *log[3:]],
        *([("duplicate", 20, 29), ("extra", 20, 29)],) * 2,
        IN_BATCH_2,
    ),
    Defect(
        "swapped-batches",
        lambda log: [*log[:2], numbered(3, base_offset=20), numbered(2, base_offset=30), *log[4:]],
        *([("diverged", 20, 39)],) * 3,
    ),
    Defect("swapped-records", swapped_records, IN_BATCH_2, [("diverged", 24, 25)], IN_BATCH_2),
    Defect("changed-byte", changed(value=b"value-2~"), IN_BATCH_2, [("diverged", 24, 24)], IN_BATCH_2),
    Defect("wrong-time", changed(timestamp_ms=NOW_MS + 5), IN_BATCH_2, [("diverged", 24, 24)], IN_BATCH_2),
    Defect("wrong-key", changed(key=b"key-42"), IN_BATCH_2, [("diverged", 24, 24)], IN_BATCH_2),
    Defect("shifted-offset", lambda log: [*log[:5], numbered(5, base_offset=51)], SHIFTED, SHIFTED, SHIFTED),
    Defect("flipped-bit", flipped, [("corrupt", 20, 29)], [("corrupt", 20, 29)], []),
)
TWICE_IN_SMALL_ANSWERS: Final = replace(DEFECTS[3], name="twice-in-small-answers")
"""For a test of its own: a broker keeps a note of where its last answer to a reader ended."""


@pytest.fixture(scope="module")
def planted(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TwoLogs]]:
    """A topic for each defect: whole at the source, with the defect at the target."""
    first, second = (LoneBroker(session_processes, tmp_path_factory.mktemp(f"planted-{name}")) for name in "ab")
    log = [numbered(number) for number in range(BATCHES)]
    produced = [numbered(number, base_offset=0) for number in range(BATCHES)]
    defects = (*DEFECTS, TWICE_IN_SMALL_ANSWERS)
    topics = [fresh_logs((first, second), defect.name) for defect in defects]
    for one in topics:
        one.append_both(*produced)
    second.process.stop()
    for one, defect in zip(topics, defects, strict=True):
        segment = one.segment(second)
        segment.write_bytes(b"".join(defect.plant(log)))
        for index in segment.parent.glob(f"{segment.stem}.*index"):
            index.unlink()
    second.restart()
    yield topics
    for broker in (first, second):
        broker.process.stop()


def reported(topics: Sequence[TwoLogs], out: Path, *options: str) -> dict[str, Any]:
    """The report of the command."""
    sites = ["--source", topics[0].a.bootstrap, "--target", topics[0].b.bootstrap, "--settle-timeout-ms", "0"]
    names = ["--whitelist", ",".join(one.topic for one in topics)]
    given = ["--records-only", "--out", str(out), "--output", "json"]
    ended = CliRunner().invoke(app, ["reconcile", *sites, *names, *given, *options])
    assert ended.exit_code == 1, (ended.output, ended.exception)
    report = json.loads(ended.stdout)
    assert not report.get("problems"), report
    return dict(report)


def found(topics: Sequence[TwoLogs], out: Path, *options: str) -> dict[str, Found]:
    """The findings by topic that the command reports."""
    return by_topic(topics, reported(topics, out, *options)["findings"])


def by_topic(topics: Sequence[TwoLogs], rows: Sequence[Mapping[str, object]]) -> dict[str, Found]:
    """Findings of a report in the form of those that a defect names."""
    assert {one.get("site", "") for one in rows if one["kind"] == "corrupt"} <= {"target"}
    return {
        one.topic: sorted(
            (str(row["kind"]), int(str(row["first_offset"])), int(str(row["last_offset"])))
            for row in rows
            if row["topic"] == one.topic
        )
        for one in topics
    }


@pytest.mark.parametrize(
    ("options", "column"),
    [((), "by_headers"), (("--deep",), "by_records"), (("--quick",), "by_digests")],
    ids=["headers", "deep", "quick"],
)
def test_each_planted_defect_is_named_by_its_offsets_and_nothing_else(
    planted: list[TwoLogs], tmp_path: Path, options: tuple[str, ...], column: str
) -> None:
    expected = {one.topic: sorted(getattr(defect, column)) for one, defect in zip(planted[:-1], DEFECTS, strict=True)}
    assert found(planted[:-1], tmp_path, *options) == expected


def test_records_are_named_in_the_batches_that_digests_find_different(planted: list[TwoLogs], tmp_path: Path) -> None:
    topics = planted[:-1]
    report = reported(topics, tmp_path, "--quick", "--deep")
    in_one_log = [row for row in report["findings"] if row["kind"] != "diverged"]
    expected = {
        one.topic: sorted(defect.by_records if defect.by_digests else [])
        for one, defect in zip(topics, DEFECTS, strict=True)
    }
    assert by_topic(topics, [*in_one_log, *report["opened"]["findings"]]) == expected
    assert report["opened"]["not_opened"] == []


def test_a_watch_counts_the_differences_of_one_comparison(planted: list[TwoLogs]) -> None:
    topics = planted[:-1]
    sites = ("--source", topics[0].a.bootstrap, "--target", topics[0].b.bootstrap)
    names = ("--whitelist", ",".join(one.topic for one in topics))
    command = [sys.executable, "-m", "cli.main", "reconcile", *sites, *names, "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as watch:
        assert watch.stdout is not None
        line = watch.stdout.readline()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 0
    assert f" {sum(len(defect.by_digests) for defect in DEFECTS)} differences" in line


@pytest.mark.parametrize("batches", [0, 1, 2, 3, 4])
def test_a_batch_that_is_held_twice_is_found_wherever_an_answer_ends(
    planted: list[TwoLogs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr("spark_jobs.logs.log_reader.FETCH_BYTES_MAX", batches * len(numbered(2)) + 1)
    assert found(planted[-1:], tmp_path) == {planted[-1].topic: TWICE_IN_SMALL_ANSWERS.by_headers}
