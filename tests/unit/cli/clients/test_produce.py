"""The report of `antipode produce` about the spread of records over partitions, and its options."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import typer

from cli.clients.produce import Run, _lines, _partitioner
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from runtime.process import ExitCode, OperationalFailure


@pytest.mark.parametrize(("is_spread_by_keys", "is_told"), [(True, True), (False, False)])
def test_one_full_partition_is_a_matter_of_the_keys_only_where_there_are_keys(
    capsys: pytest.CaptureFixture[str], *, is_spread_by_keys: bool, is_told: bool
) -> None:
    """A hundred lines without keys are less than a batch, which goes to one partition as a whole
    (KIP-480).
    """
    run = Run(
        "orders",
        lambda line: ProducerRecord(topic="orders", value=line),
        ProducerOptions(),
        file=None,
        is_dry_run=False,
        is_spread_by_keys=is_spread_by_keys,
    )
    run.partitions, run.partition_count, run.lines_read, run.is_complete = Counter({2: 100}), 4, 100, True
    run.report()
    said = capsys.readouterr().out
    assert "100 records are in orders" in said
    assert ("look at the keys" in said) is is_told


async def test_a_file_that_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(OperationalFailure, match=f"{tmp_path} cannot be read: Is a directory"):
        [line async for line in _lines(tmp_path)]


@pytest.mark.parametrize("name", [".", "..x:y", "no.such:Class", "os:nothing", ":"])
def test_a_partitioner_that_cannot_be_imported_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        _partitioner(name)
    assert ended.value.exit_code == ExitCode.USAGE
    assert "is not usable" in capsys.readouterr().err
