"""`antipode checkpoint`: checkpoints of Spark's Structured Streaming queries."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, SourceBootstrapServer, client_of
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from mirror.translate.offset_translator import TranslatedOffset
    from spark_jobs.connector.core.checkpoints import Position

app = typer.Typer(help="Checkpoints of Spark's streaming queries.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make this a group: without a callback a group of one command is that command."""


@app.command()
def translate(
    checkpoint: Annotated[Path, typer.Argument(help="The query's checkpoint, a directory of this machine.")],
    link: Annotated[str, typer.Option("--link", help="Name of the translate link.")],
    to: Annotated[Path | None, typer.Option("--to", help="Directory of the new checkpoint; the old one stays.")] = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_upstream: Annotated[
        bool, typer.Option("--upstream", help="The query ran at the target and continues at the source.")
    ] = False,
    source_bootstrap_server: SourceBootstrapServer = "",
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the offsets and write nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Copy a checkpoint with offsets of the other end of a translate link. The command reads the
    link's offset map from the brokers of its target.

    Stop the query first. The query reads an unfinished batch again. Where the offset map lacks an
    offset, the query continues from the last offset in the map, and reads some records again.
    Checkpoints over an exact link need no translation.

    Example: antipode checkpoint translate out/checkpoint --link a-b --to out/checkpoint-at-b
    --bootstrap-server b1:9092
    """
    from spark_jobs.connector.checkpoint_files import Checkpoint
    from spark_jobs.connector.core.checkpoints import positions, rewritten

    if to is None and not is_dry_run:
        raise usage_error("--to is not set; accepted: a directory for the new checkpoint, or --dry-run")
    with failures_as_messages():
        found = Checkpoint(checkpoint)
        read = sorted(positions(found.offsets))
        if not read:
            raise OperationalFailure(f"batch {found.batch} of {checkpoint} has no offsets of topics")
        there = asyncio.run(
            _translated((bootstrap_server, source_bootstrap_server), link, read, is_upstream=is_upstream)
        )
        if to is not None and not is_dry_run:
            places = {position: (one.topic, one.partition, one.offset) for position, one in there.items()}
            found.copy(to, lambda file: rewritten(file, places))
    rows = [
        {
            "topic": key[0],
            "partition": key[1],
            "offset": offset,
            "topic_there": one.topic,
            "offset_there": one.offset,
            "is_noted": one.is_known,
        }
        for (key, offset), one in there.items()
    ]
    if output is OutputFormat.JSON:
        print_json({"batch": found.batch, "to": None if is_dry_run else str(to), "offsets": rows})
        return
    table = [
        (f"{row['topic']}-{row['partition']}", row["offset"], row["topic_there"], row["offset_there"], row["is_noted"])
        for row in rows
    ]
    print_table("", ["partition", "offset", "topic there", "offset there", "noted"], table)
    if not is_dry_run:
        console.print(f"{to}: goes on after batch {found.batch}", highlight=False, markup=False)


async def _translated(
    ends: tuple[str, str], link: str, read: list[Position], *, is_upstream: bool
) -> dict[Position, TranslatedOffset]:
    """Asks the target's brokers and, unless they are not named, the source's."""
    from mirror.link.ports import Unreachable
    from mirror.translate.offset_translator import OffsetTranslator
    from wire.client.client_errors import KafkaClientError

    try:
        async with AsyncExitStack() as clients:
            target, source = [await clients.enter_async_context(client_of(end)) if end else None for end in ends]
            if target is None:
                raise OperationalFailure("the target's brokers are not named")
            translator = await OffsetTranslator.read(target, link, source=source)
    except (KafkaClientError, Unreachable) as error:
        raise OperationalFailure(str(error)) from error
    ask = translator.upstream if is_upstream else translator.downstream
    return {(key, offset): ask(*key, offset) for key, offset in read}
