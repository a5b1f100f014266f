"""`antipode links translate-offset`: translates one offset between the two ends of a translate
link.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from cli.links.mirrors import Name
from cli.shared.failures import failures_as_messages
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, SourceBootstrapServer, client_of
from cli.shared.output import Output, OutputFormat, console, print_json
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from mirror.translate.offset_translator import TranslatedOffset


def translate_offset(
    name: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic, by its name at the site of the offset.")],
    offset: Annotated[int, typer.Option(help="The offset to translate.", min=0)],
    partition: Annotated[int, typer.Option(help="The partition.", min=0)] = 0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_upstream: Annotated[
        bool, typer.Option("--upstream", help="The offset is one of the target; print the source's.")
    ] = False,
    source_bootstrap_server: SourceBootstrapServer = "",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Translate an offset of the source to the target's, or back, by the mirror's notes at the
    target (the command asks its brokers).

    Neither the source nor the mirror needs to run. The offset of a record that was not carried is
    translated to that of the next carried record. If both directions use the same names, records of
    the opposite link count too: name the source's brokers, which know it.

    Example: antipode links translate-offset a-b --topic orders --partition 3 --offset 1234
    --bootstrap-server b1:9092
    """
    with failures_as_messages():
        ends = (bootstrap_server, source_bootstrap_server)
        found = asyncio.run(_translated(ends, name, topic, partition, offset, is_upstream=is_upstream))
    if output is OutputFormat.JSON:
        print_json(to_builtins(found))
        return
    place = f"{found.topic}-{found.partition}"
    alone = " (by this link alone; see --source-bootstrap-server)" if found.opposite == "not asked" else ""
    if found.is_known:
        console.print(f"{place} offset {found.offset}{alone}", highlight=False, markup=False)
    else:
        console.print(
            f"{place}: not stored yet; the stored map ends at offset {found.offset}{alone}",
            highlight=False,
            markup=False,
        )


async def _translated(
    ends: tuple[str, str], link: str, topic: str, partition: int, offset: int, *, is_upstream: bool
) -> TranslatedOffset:
    """Asks the target's brokers and, if they are named, the source's."""
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
    translate = translator.upstream if is_upstream else translator.downstream
    return translate(topic, partition, offset)
