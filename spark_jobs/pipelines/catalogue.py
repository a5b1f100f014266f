"""The pipelines by name: `antipode pipeline list` and `run` find them here."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from runtime.process import ExitCode, OperationalFailure
from spark_jobs.session import result_of, session

WITHIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A job: its module has `parser()`, and `run(spark, arguments)` that ends with a sentence."""

    name: str
    summary: str

    @property
    def module(self) -> Any:
        """The module of the job."""
        return importlib.import_module(f"spark_jobs.pipelines.{self.name.replace('-', '_')}")


PIPELINES: Final = (
    Pipeline(name="word-count", summary="counts the words of a topic's lines into another topic, as they change"),
    Pipeline(name="files-to-topic", summary="writes the lines of text files to a topic"),
    Pipeline(name="topic-to-files", summary="writes what a topic has got since the last run to Parquet files"),
    Pipeline(name="follow-topics", summary="keeps topics as Parquet files, and compares files and topics at the end"),
    Pipeline(name="hot-and-cold", summary="keeps a topic's records as files, and counts over files and topic by SQL"),
    Pipeline(name="log-produce", summary="writes log lines as several clients send them"),
    Pipeline(name="log-documents", summary="keeps matching log lines as documents, each once, and finds them by SQL"),
    Pipeline(name="trigger-delay", summary="measures the delay of records for several times between two batches"),
    Pipeline(name="road-produce", summary="writes records as road checkpoints and recognition servers send them"),
    Pipeline(name="road-ingest", summary="stores the records of road checkpoints, rejects bad ones, watches plates"),
    Pipeline(name="road-report", summary="delay by hour, skew, plates at two places, references that dangle"),
)


def pipeline(name: str) -> Pipeline:
    """The pipeline of this name. Raises KeyError with the accepted names."""
    for one in PIPELINES:
        if one.name == name:
            return one
    raise KeyError(f"there is no pipeline {name!r}; accepted: {', '.join(one.name for one in PIPELINES)}")


class JobParser(argparse.ArgumentParser):
    """A parser that also refuses options which contradict each other, before Spark starts. `check`
    returns a sentence about them, or None. `brokers_of` returns the bootstrap servers that the job
    asks first, empty for a job without brokers; `topics` names the options with topics, joined by
    commas, that have to be there: brokers may create a topic whose name is misspelt.
    """

    check: Callable[[argparse.Namespace], str | None] = staticmethod(lambda _: None)
    brokers_of: Callable[[argparse.Namespace], str] = staticmethod(
        lambda given: str(getattr(given, "bootstrap_server", ""))
    )
    topics: tuple[str, ...] = ()

    def topics_of(self, given: argparse.Namespace) -> list[str]:
        """The topics that have to be there."""
        named = ",".join(str(getattr(given, name)) for name in self.topics)
        return [topic.strip() for topic in named.split(",") if topic.strip()]

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options; ends the program with 2 for wrong ones."""
        given = super().parse_args(args, namespace)
        problem = self.check(given)
        if problem is not None:
            self.error(problem)
        return given


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that takes a number from `least` on."""

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"accepted: a number from {least} on, not {text!r}")
        return number

    return parsed


def topic_parser(description: str) -> JobParser:
    """A parser with the option that all pipelines have."""
    parser = JobParser(description=description)
    parser.add_argument("--bootstrap-server", required=True, help="brokers, host:port[,host:port...]")
    return parser


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """The options of a streaming query."""
    parser.add_argument("--checkpoint", required=True, help="directory of the query's checkpoint; good at both sites")
    parser.add_argument("--once", action="store_true", help="work on what is there now, and end")
    parser.add_argument("--trigger-ms", type=at_least(1), default=WITHIN_MS, help="time between two batches")


def add_loss_option(parser: argparse.ArgumentParser) -> None:
    """The option of a query that an operator lets continue without records which it has read."""
    parser.add_argument(
        "--skip-lost",
        action="store_true",
        help="continue where a failover has lost records that the query has read; without it the query stops",
    )


def loss_options(given: argparse.Namespace) -> dict[str, str]:
    """The option of the data source for `--skip-lost`."""
    return {"failOnDataLoss": "false" if given.skip_lost else "true"}


def trigger_of(given: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a streaming query's `trigger`."""
    return {"availableNow": True} if given.once else {"processingTime": f"{given.trigger_ms} milliseconds"}


def submitted(
    parser: argparse.ArgumentParser,
    run: Callable[[SparkSession, argparse.Namespace], str],
    arguments: Sequence[str] | None = None,
) -> None:
    """The program for spark-submit; ends with 1 and one line when the job fails."""
    given = parser.parse_args(arguments)
    try:
        print(result_of(lambda: run(session("antipode pipeline", is_local=False), given)))
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(ExitCode.FAILED)
