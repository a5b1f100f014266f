"""`antipode links reinstate`: make the copies of a site that was failed away from standbys again,
after what they have alone is in quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.links.mirrors import RESET_TIMEOUT_S, MirrorAddress, Name, Topics, asked
from cli.shared.failures import usage_error
from cli.shared.output import Output, OutputFormat, print_json, print_table, report_progress
from cli.shared.sites import EnvironmentFile
from runtime.process import ExitCode

if TYPE_CHECKING:
    from wire.control.mirror_pb2 import ReinstateCopiesReply, ReinstatedCopy


def reinstate(
    name: Name,
    topic: Topics = None,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make FAULTED copies of a site that was failed away from standbys again, without copying them
    anew.

    For each partition, the standby puts the records that the active site does not have into
    quarantine (`antipode quarantine`) and truncates its log to the history that both sites have;
    the mirror continues there. The active site's topics are never touched. Exit code 1 when a
    partition is refused.

    Example: antipode links reinstate a-b --dry-run --mirror mirror1:9290
    """
    from wire.control.mirror_pb2 import ReinstateCopiesRequest

    def reinstate_copies(*, is_plan: bool) -> Sequence[ReinstatedCopy]:
        request = ReinstateCopiesRequest(topics=topic or (), is_dry_run=is_plan, link=name)
        reply: ReinstateCopiesReply = asked(
            name, mirror, environment, lambda stub: stub.ReinstateCopies(request, timeout=RESET_TIMEOUT_S)
        )
        return reply.partitions

    found = reinstate_copies(is_plan=True)
    planned = [one for one in found if one.outcome == "planned"]
    if not is_dry_run and planned:
        if not is_sure:
            for one in planned:
                report_progress(
                    f"{one.topic}-{one.partition}: {one.reason}; offsets {one.from_offset} to {one.end_offset} go into quarantine"
                )
            typer.confirm(f"Reinstate the copies of {len(planned)} partitions?", abort=True, err=True)
        found = reinstate_copies(is_plan=False)
    shown = [_json(one) for one in found]
    if output is OutputFormat.JSON:
        print_json(shown)
    else:
        columns = ("topic", "partition", "outcome", "from offset", "end offset", "quarantine entry", "reason")
        print_table(f"link {name}", columns, [tuple(one.values()) for one in shown])
    if not found:
        raise usage_error(f"link {name} has no such partition that this mirror carries")
    if any(one.outcome == "refused" for one in found):
        raise typer.Exit(ExitCode.FAILED)


def _json(one: ReinstatedCopy) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "outcome": one.outcome,
        "from_offset": None if one.from_offset < 0 else one.from_offset,
        "end_offset": None if one.end_offset < 0 else one.end_offset,
        "entry": one.entry or None,
        "reason": one.reason,
    }
