"""The programs of a drill's queries, with a program that keeps the same files as the real one.
Promised: a second start moves the query and starts no other program while the first one runs; the
counts of the end are the program's; a program that fails is named with its last output; none
outlives the drill; a loss that the account contradicts fails the step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr.drill.drill_queries import BROKERS, DrillQueries
from dr.drill.drill_results import DrillResult
from dr.drill.environment import Environment
from dr.drill.plan.load_verbs import FinishQuery
from dr.drill.steps.query_steps import QuerySteps
from runtime.process import OperationalFailure
from tests.support.eventually import eventually

PROGRAM = """
import json, pathlib, sys, time
bootstrap, topics, directory = sys.argv[1:]
directory = pathlib.Path(directory)
if topics == "bad":
    sys.exit("no such topic")
(directory / "stored").touch()
ends_at = time.monotonic() + 60
while not (directory / "finish").exists():
    if time.monotonic() > ends_at:
        sys.exit("the test has not asked it to finish")
    time.sleep(0.01)
moved = (directory / "brokers").read_text() if (directory / "brokers").exists() else ""
(directory / "comparison.json").write_text(json.dumps({"stored": len(topics), "moved": moved == "b:1"}))
"""
COMMAND = (sys.executable, "-c", PROGRAM, "{bootstrap}", "{topics}", "{directory}")


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[DrillQueries]:
    # the command is formatted, so braces of the program itself are doubled
    program = PROGRAM.replace("{", "{{").replace("}", "}}")
    started = DrillQueries(tmp_path, (*COMMAND[:2], program, *COMMAND[3:]))
    yield started
    started.end_all()


async def test_a_query_moves_and_its_counts_are_those_of_its_program(queries: DrillQueries, tmp_path: Path) -> None:
    assert not queries.start("q", bootstrap="a:1", topics=["x", "y"])
    await eventually(lambda: queries.has_stored("q"))
    assert queries.start("q", bootstrap="b:1", topics=["x", "y"])
    assert (tmp_path / "q" / BROKERS).read_text() == "b:1"
    assert await queries.finish("q", within_ms=30_000) == {"stored": 3, "moved": True}
    queries.check_alive()
    queries.end_all()


async def test_a_query_that_has_finished_goes_on_with_a_program_of_its_own(
    queries: DrillQueries, tmp_path: Path
) -> None:
    queries.start("q", bootstrap="a:1", topics=["x"])
    assert await queries.finish("q", within_ms=30_000) == {"stored": 1, "moved": False}
    assert queries.start("q", bootstrap="b:1", topics=["x", "y"])
    assert not (tmp_path / "q" / "finish").exists()
    assert await queries.finish("q", within_ms=30_000) == {"stored": 3, "moved": False}


async def test_a_query_of_an_earlier_drill_in_the_directory_has_no_part_in_this_one(
    queries: DrillQueries, tmp_path: Path
) -> None:
    (tmp_path / "q" / "checkpoint").mkdir(parents=True)
    (tmp_path / "q" / "finish").touch()
    (tmp_path / "q" / "stored").touch()
    queries.start("q", bootstrap="a:1", topics=["bad"])
    assert not queries.has_stored("q")
    assert not (tmp_path / "q" / "checkpoint").exists()


async def test_a_program_that_fails_is_named_with_its_last_output(queries: DrillQueries) -> None:
    queries.start("q", bootstrap="a:1", topics=["bad"])
    with pytest.raises(OperationalFailure, match="query q ended with exit code 1: no such topic"):
        await queries.finish("q", within_ms=30_000)
    with pytest.raises(OperationalFailure, match="no such topic"):
        queries.check_alive()


async def test_a_program_that_does_not_end_in_time_is_named_and_killed_with_the_drill(
    tmp_path: Path,
) -> None:
    queries = DrillQueries(tmp_path, (sys.executable, "-c", "import time; time.sleep(600)"))
    queries.start("q", bootstrap="a:1", topics=["x"])
    with pytest.raises(OperationalFailure, match="query q did not end within 100 ms"):
        await queries.finish("q", within_ms=100)
    queries.end_all()
    with pytest.raises(OperationalFailure, match="query 'other' was not started; started: q"):
        queries.has_stored("other")
    with pytest.raises(OperationalFailure, match="exit code -9"):
        queries.check_alive()


LOSING = """
import json, pathlib, sys, time
directory, repeated = pathlib.Path(sys.argv[1]), int(sys.argv[2])
ends_at = time.monotonic() + 60
while not (directory / "finish").exists():
    if time.monotonic() > ends_at:
        sys.exit("the test has not asked it to finish")
    time.sleep(0.01)
lost = [{"topic": "t", "partition": 0, "first_offset": 7, "records": 2}]
found = {"stored": 9, "missing": 0, "repeated": repeated, "lost": 2, "lost_from": lost}
(directory / "comparison.json").write_text(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("repeated", "problem"),
    [(0, "t-0: 2 records are lost, and no account has the partition"), (1, "0 missing, 1 repeated")],
)
async def test_a_loss_without_an_account_and_a_repeated_record_fail_the_step(
    tmp_path: Path, repeated: int, problem: str
) -> None:
    program = LOSING.replace("{", "{{").replace("}", "}}")
    queries = DrillQueries(tmp_path, (sys.executable, "-c", program, "{directory}", str(repeated)))
    result = DrillResult(name="drill", description="", link="a-b", started_at_ms=0)
    environment = Environment(sites={})
    steps = QuerySteps(environment=environment, link="a-b", queries=queries, result=result)
    queries.start("q", bootstrap="a:1", topics=["t"])
    with pytest.raises(OperationalFailure, match=problem):
        await steps.carry_out(FinishQuery(name="q", within="30s"))
    assert result.queries["q"]["stored"] == 9
