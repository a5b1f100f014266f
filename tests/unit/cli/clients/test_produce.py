"""The report of `antipode produce` about the spread of records over partitions, and its options."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import typer

from cli.clients.input_lines import lines_of
from cli.clients.produce import Run, _partitioner, produce
from clients.producer.producer_options import ProducerOptions, ProducerRecord
from runtime.process import ExitCode, OperationalFailure
from tests.support.clients.scripted_cluster import METADATA, PRODUCE, ScriptedCluster
from tests.support.eventually import eventually


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
        [line async for line in lines_of(tmp_path)]


def test_an_interrupted_command_does_not_wait_for_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(reading) as source, open(writing, "wb", buffering=0) as typed:
        monkeypatch.setattr(sys, "stdin", source)

        async def interrupted() -> None:
            typed.write(b"one\n")
            async with aclosing(lines_of(None)) as lines:
                assert await anext(lines) == b"one"
                with suppress(TimeoutError):
                    await asyncio.wait_for(anext(lines), 0.05)

        command = threading.Thread(target=asyncio.run, args=[interrupted()], daemon=True)
        command.start()
        command.join(10)
        assert not command.is_alive()


@pytest.mark.parametrize("ignored", [[], [signal.SIGINT]])
async def test_a_run_that_sigterm_ends_reports_each_line(ignored: list[signal.Signals]) -> None:
    """A shell has its background jobs ignore SIGINT."""
    program = f"import signal; [signal.signal(number, signal.SIG_IGN) for number in {[*map(int, ignored)]}]; "
    program += "from cli.main import main; main()"
    async with ScriptedCluster() as cluster:
        cluster.going.clear()
        arguments = ["produce", "t", "--bootstrap-server", cluster.bootstrap, "--output", "json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        await eventually(lambda: cluster.count(PRODUCE) > 0, within_ms=60_000)
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
    document = json.loads(output)
    assert (document["is_complete"], document["lines_read"], document["unacknowledged"]) == (False, 2, 2)
    assert process.returncode == ExitCode.FAILED


async def test_a_dry_run_creates_no_topic(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n")
    async with ScriptedCluster() as cluster:
        (broker,) = cluster.brokers.values()
        await asyncio.to_thread(produce, "t", str(broker.address), file, is_dry_run=True)
        requests = broker.requests(METADATA)
        assert requests
        assert not any(asked.allow_auto_topic_creation for asked in requests)


def test_a_topic_without_a_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        produce("")
    assert ended.value.exit_code == ExitCode.USAGE
    assert "TOPIC '' is not usable" in capsys.readouterr().err


@pytest.mark.parametrize("name", [".", "..x:y", "no.such:Class", "os:nothing", ":"])
def test_a_partitioner_that_cannot_be_imported_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        _partitioner(name)
    assert ended.value.exit_code == ExitCode.USAGE
    assert "is not usable" in capsys.readouterr().err
