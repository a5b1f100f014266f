"""`antipode links translate-offset`: one offset of a translate link at its other end."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, client_of
from cli.mirrors import Name
from cli.output import Output, OutputFormat, console, failures_as_messages, print_json
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from mirror.offset_translator import TranslatedOffset


def translate_offset(
    name: Name,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic, as it is called where the offset is from.")],
    offset: Annotated[int, typer.Option(help="The offset to translate.", min=0)],
    partition: Annotated[int, typer.Option(help="The partition.", min=0)] = 0,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    is_upstream: Annotated[
        bool, typer.Option("--upstream", help="The offset is one of the target; say which of the source it is.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Which offset of the target is this one of the source, or back, by what the link's mirror has noted at the target (ask its brokers).

    Neither the source nor the mirror needs to be there. Between records that were not carried it is the next one that was.

    Example: antipode links translate-offset a-b --topic orders --partition 3 --offset 1234 --bootstrap-server b1:9092
    """
    with failures_as_messages():
        found = asyncio.run(_translated(bootstrap_server, name, topic, partition, offset, is_upstream=is_upstream))
    if output is OutputFormat.JSON:
        print_json(asdict(found))
        return
    place = f"{found.topic}-{found.partition}"
    if found.is_known:
        console.print(f"{place} offset {found.offset}", highlight=False)
    else:
        console.print(f"{place}: not noted yet; what is noted ends at offset {found.offset}", highlight=False)


async def _translated(
    bootstrap_server: str, link: str, topic: str, partition: int, offset: int, *, is_upstream: bool
) -> TranslatedOffset:
    from mirror.offset_translator import OffsetTranslator
    from mirror.ports import Unreachable
    from wire.client_errors import KafkaClientError

    try:
        async with client_of(bootstrap_server) as client:
            translator = await OffsetTranslator.read(client, link)
    except (KafkaClientError, Unreachable) as error:
        raise OperationalFailure(str(error)) from error
    translate = translator.upstream if is_upstream else translator.downstream
    return translate(topic, partition, offset)
