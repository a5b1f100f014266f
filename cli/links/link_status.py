"""`antipode links status`: of each link, in a line, who is active, how its mirror is, and how far
the other site is behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.administration.status import known_places, look, problems
from cli.links.mirrors import MirrorAddress, describe_mirror
from cli.shared.failures import failures_as_messages, print_error, usage_error
from cli.shared.output import Output, OutputFormat, print_json, print_table
from cli.shared.sites import EnvironmentFile, SiteOptions
from mirror.flow.core.health import HEALTHY_STATES
from runtime.process import ExitCode
from runtime.times import iso_time
from wire.protocol.ids import UNKNOWN

if TYPE_CHECKING:
    from wire.control.mirror_pb2 import DescribeMirrorReply

NOT_KNOWN = "not known"
UNMEASURED_STATES = ("PREPARING", "SOURCE_UNAVAILABLE")
"""The states in which a mirror without partitions does not know its topics yet."""
PREPARING_BELIEVED_MS = 60_000
"""Time (ms) that partitions may spend preparing, for instance after the loss of a leader, before
the command reports a problem.
"""


def status(
    name: Annotated[str | None, typer.Argument(help="Name of the link; without it all of them.")] = None,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the state of links: the active site, the mirror's state, the lag. Exit code 1 when a
    link needs a person.

    Both sites are asked; with --mirror the link's mirror, which alone knows of translate links.

    Example: antipode links status a-b --mirror mirror1:9290
    """
    if mirror is not None:
        if name is None:
            raise usage_error("--mirror belongs to one link: name the link")
        _show_mirror(describe_mirror(name, mirror, environment), output)
        return
    with failures_as_messages():
        document = asyncio.run(look(known_places(environment, site)))
    links = [link for link in document["links"] if name in (None, link["name"])]
    if name is not None and not links:
        print_error(f"no site knows of a link {name}")
        raise typer.Exit(ExitCode.FAILED)
    found = problems({}, links)
    if output is OutputFormat.JSON:
        print_json({"links": links, "problems": found})
    else:
        columns = ("link", "from", "to", "active", "epoch", "mirror", "records behind", "bytes behind", "ms behind")
        keys = ("name", "source", "target", "active_site", "epoch", "mirror", "lag_records", "lag_bytes", "lag_ms")
        print_table("", columns, [[_text(link[key]) for key in keys] for link in links])
        for problem in found:
            print_error(problem)
    raise typer.Exit(ExitCode.FAILED if found else ExitCode.DONE)


def summary(reply: DescribeMirrorReply) -> dict[str, Any]:
    """The summary of a mirror's partitions. The lag is None if it is unknown for one partition, or
    was not measured for any.
    """
    lags = {unit: [getattr(one, f"lag_{unit}") for one in reply.partitions] for unit in ("records", "bytes", "ms")}
    is_measured = bool(reply.partitions) or reply.state not in UNMEASURED_STATES
    known = {unit: None if UNKNOWN in values or not is_measured else values for unit, values in lags.items()}
    return {
        "link": reply.link,
        "mode": reply.mode,
        "state": reply.state,
        "reason": reply.reason,
        "partitions": dict(sorted(Counter(one.state for one in reply.partitions).items())),
        "lag_records": None if known["records"] is None else sum(known["records"]),
        "lag_bytes": None if known["bytes"] is None else sum(known["bytes"]),
        "lag_ms": None if known["ms"] is None else max(known["ms"], default=0),
        "stalled_partitions": sum(one.stalled_ms > 0 for one in reply.partitions),
        "queued_bytes": reply.queued_bytes,
        "groups_synced_at_ms": reply.groups_synced_at_ms,
        "groups_failing": len(reply.group_problems),
        "refused_changes": len(reply.refused_changes),
        "mirror_maker_problem": reply.mirror_maker_problem,
        "failing_daemons": dict(reply.failing_daemons),
        "disagreements": len(reply.disagreements),
        "untaken_partitions": reply.untaken_count,
        "paused_topics": list(reply.paused_topics),
    }


def _show_mirror(reply: DescribeMirrorReply, output: OutputFormat) -> None:
    found = summary(reply)
    if output is OutputFormat.JSON:
        print_json(found)
    else:
        states = ", ".join(f"{count} {state}" for state, count in found["partitions"].items()) or "none"
        columns = ("link", "state", "partitions", "records behind", "bytes behind", "ms behind", "groups", "reason")
        synced_at = iso_time(reply.groups_synced_at_ms)
        groups = f"carried {synced_at}" if synced_at else "not carried yet"
        if found["groups_failing"]:
            groups = f"{found['groups_failing']} failing"
        lags = [_text(found[f"lag_{unit}"]) for unit in ("records", "bytes", "ms")]
        print_table("", columns, [(reply.link, reply.state, states, *lags, groups, reply.reason)])
        if found["stalled_partitions"]:
            print_error(
                f"{found['stalled_partitions']} partitions do not move: antipode links describe --mirror says for how long"
            )
        if found["refused_changes"]:
            print_error(
                f"the target refuses {found['refused_changes']} changes: antipode links describe --mirror names them"
            )
        if reply.mirror_maker_problem:
            print_error(reply.mirror_maker_problem)
        for problem in daemon_problems(reply):
            print_error(problem)
    raise typer.Exit(ExitCode.DONE if is_well(reply) else ExitCode.FAILED)


def daemon_problems(reply: DescribeMirrorReply) -> list[str]:
    """The problems between the daemons that share a link."""
    found = [
        f"daemon {name} does not carry offsets: {problem}" for name, problem in sorted(reply.failing_daemons.items())
    ]
    found += [one.reason for one in reply.disagreements]
    if reply.untaken_count:
        found.append(
            f"no daemon mirrors {reply.untaken_count} partitions of this daemon's filters: antipode links describe --mirror names them"
        )
    return found


def is_well(reply: DescribeMirrorReply) -> bool:
    """True if no operator action is needed. A mirror in PREPARING needs one if it has not started
    completely, or if its preparation takes long.
    """
    if reply.group_problems or reply.refused_changes or reply.mirror_maker_problem or daemon_problems(reply):
        return False
    if any(one.stalled_ms for one in reply.partitions):
        return False
    if reply.state == "PREPARING":
        # Each partition prepares for a moment after a change of its leader: that is no problem yet.
        lag_ms = summary(reply)["lag_ms"]
        return lag_ms is not None and lag_ms < PREPARING_BELIEVED_MS
    return reply.state in HEALTHY_STATES


def _text(value: object) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value:,}" if isinstance(value, int) else str(value) or "none"
