"""`antipode reconcile` of a translate link: by the offset map that the link has noted at its
target, or by content alone.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cli.shared.command_config import command_config_environment
from cli.shared.output import report_progress
from runtime.process import OperationalFailure

if TYPE_CHECKING:
    from spark_jobs.reconciling.core.verdict import ReconciliationReport
    from spark_jobs.reconciling.request import Request
    from spark_jobs.reconciling.translated_run import LinkNotes


def compare_translated(request: Request, directory: Path, link: str) -> ReconciliationReport:
    """Compare, and leave the report in the directory. An empty `link` compares topics of the same
    name by content.
    """
    from spark_jobs.reconciling.report import write_report
    from spark_jobs.reconciling.translated_run import reconcile_translated

    os.environ.update(command_config_environment())
    found = reconcile_translated(
        request,
        lambda: _notes_of_link(request.target_bootstrap, link) if link else _notes_of_names(request),
        report_progress,
    )
    write_report(found, directory)
    return found


def _notes_of_names(request: Request) -> LinkNotes:
    from spark_jobs.logs.survey import topic_names
    from spark_jobs.reconciling.translated_run import LinkNotes

    return LinkNotes(topics={name: name for name in topic_names(request.source_bootstrap)})


def _notes_of_link(target: str, link: str) -> LinkNotes:
    from mirror.link.ports import Unreachable
    from mirror.translate.notes.offset_store import read_link
    from spark_jobs.logs.log_reader import client
    from spark_jobs.reconciling.core.translated_logs import MirroredRun
    from spark_jobs.reconciling.translated_run import LinkNotes
    from wire.client.client_errors import KafkaClientError

    async def read() -> LinkNotes:
        async with client(target) as reader:
            stored, _ = await read_link(reader, link)
        return LinkNotes(
            topics={name: binding.target for name, binding in stored.bindings.items()},
            runs={
                (key.topic, key.partition): [MirroredRun(*run) for run in stored.translation(key).map]
                for key in stored.positions
            },
            source_next={(key.topic, key.partition): one.source_next for key, one in stored.positions.items()},
            own_producers=frozenset({*stored.producers.values(), *stored.writers}),
        )

    try:
        return asyncio.run(read())
    except (KafkaClientError, Unreachable) as error:
        raise OperationalFailure(f"the notes of link {link!r} cannot be read: {error}") from error
