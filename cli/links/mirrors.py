"""`antipode links pause`, `resume`, `verify`, `reset` and the mirror's part of `describe`: requests
to a link's mirror daemon.

`--mirror` or the environment file gives the daemon's address, on which it serves
`antipode.grpc.listener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.shared.failures import failures_as_messages, print_error, usage_error
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table, report_progress
from cli.shared.sites import EnvironmentFile, environment_file, open_environment
from runtime.addresses import parse_host_port
from runtime.process import ExitCode, OperationalFailure
from runtime.times import iso_time
from wire.rules.topic_config_kinds import LONG_MAX

if TYPE_CHECKING:
    from pathlib import Path

    from wire.control.mirror_pb2 import (
        DescribeMirrorReply,
        PauseMirrorReply,
        ResetTopic,
        ResetTopicsReply,
        VerifiedPartition,
    )

CALL_TIMEOUT_S = 10
LOOK_TIMEOUT_S = 2.0
VERIFY_TIMEOUT_S = 24 * 3600
RESET_TIMEOUT_S = 600
"""A copy into quarantine takes long; an interrupted reset can be requested again."""

Name = Annotated[str, typer.Argument(help="Name of the link.")]
MirrorAddress = Annotated[
    str | None, typer.Option("--mirror", "-m", help="gRPC address of the link's mirror daemon, host:port.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Regular expression of whole topic names; may be given again. None: all."),
]
Answer = TypeVar("Answer")


def pause(
    name: Name,
    topic: Topics = None,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Stop mirroring topics of a link until they are resumed; fetched records are still delivered.

    Example: antipode links pause a-b --topic "orders.*" --mirror mirror1:9290
    """
    from wire.control.mirror_pb2 import PauseMirrorRequest

    request = PauseMirrorRequest(topics=topic or (), link=name)
    _print_pauses(
        name, asked(name, mirror, environment, lambda stub: stub.PauseMirror(request, timeout=CALL_TIMEOUT_S)), output
    )


def resume(
    name: Name,
    topic: Topics = None,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Take pauses back, by the expressions that were given to pause; without any, all of them.

    Example: antipode links resume a-b --mirror mirror1:9290
    """
    from wire.control.mirror_pb2 import PauseMirrorRequest

    request = PauseMirrorRequest(topics=topic or (), link=name)
    _print_pauses(
        name, asked(name, mirror, environment, lambda stub: stub.ResumeMirror(request, timeout=CALL_TIMEOUT_S)), output
    )


def verify(
    name: Name,
    topic: Topics = None,
    last: Annotated[
        int, typer.Option("--last", min=0, max=LONG_MAX, help="Only so many of a partition's last offsets; 0: all.")
    ] = 0,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare mirrored batches with the source, batch by batch, while mirroring continues. Exit
    code 1 when anything differs, is unknown, or nothing was compared.

    Example: antipode links verify a-b --last 100000 --mirror mirror1:9290
    """
    from wire.control.mirror_pb2 import VerifyMirrorRequest

    request = VerifyMirrorRequest(topics=topic or (), last_offsets=last, link=name)

    async def ask(stub: Any) -> list[VerifiedPartition]:
        return [one async for one in stub.VerifyMirror(request, timeout=VERIFY_TIMEOUT_S)]

    found = asked(name, mirror, environment, ask)
    if output is OutputFormat.JSON:
        print_json([_verified_json(one) for one in found])
    else:
        columns = ("topic", "partition", "verdict", "from", "to", "batches", "records", "finding")
        print_table(f"link {name}", columns, [tuple(_verified_json(one).values()) for one in found])
    if not found:
        print_error(f"link {name}: {_meant(topic)} has no partition that this mirror carries; nothing was compared")
    if not found or any(one.verdict != "equal" for one in found):
        raise typer.Exit(ExitCode.FAILED)


def reset(
    name: Name,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="Regular expression of whole topic names; may be given again.")
    ],
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Remove the standby's copies of topics in RESET, FAULTED or GAP, and copy them again from the
    beginning of the source's log.

    Also of compacted topics that may lack tombstones. First counts the records of each copy, and
    puts the records that the source does not have into quarantine at the standby before it deletes
    a copy (`antipode quarantine`). The active site's topics are never touched. Exit code 1 when a
    topic is refused.

    Example: antipode links reset a-b --topic orders --dry-run --mirror mirror1:9290
    """
    from wire.control.mirror_pb2 import ResetTopicsRequest

    def reset_topics(*, is_plan: bool) -> ResetTopicsReply:
        request = ResetTopicsRequest(topics=topic, is_dry_run=is_plan, link=name)
        reply: ResetTopicsReply = asked(
            name, mirror, environment, lambda stub: stub.ResetTopics(request, timeout=RESET_TIMEOUT_S)
        )
        return reply

    # The plan comes first, also with --yes: a reset is refused or does nothing for some topics.
    found = reset_topics(is_plan=True).topics
    going = sum(one.outcome == "planned" for one in found)
    if not is_dry_run and going:
        if not is_sure:
            for one in found:
                going_where = f"{_offsets(one)} offsets in the copy, {_offsets_kept(one)} of them to quarantine"
                report_progress(f"{one.topic}: {one.outcome}, {going_where}; {one.reason}")
            typer.confirm(f"Put away the copies of {going} topics?", abort=True, err=True)
        found = reset_topics(is_plan=False).topics
    _print_resets(name, found, output)
    if not found:
        raise usage_error(f"--topic {', '.join(topic)}: matches no topic that link {name} carries")
    if any(one.outcome == "refused" for one in found):
        raise typer.Exit(ExitCode.FAILED)


def describe_mirror(name: str, mirror: str | None, environment: Path | None) -> DescribeMirrorReply:
    """The description of the link's mirror. Ends the command with one message when the mirror does
    not answer.
    """
    from wire.control.mirror_pb2 import DescribeMirrorRequest

    request = DescribeMirrorRequest(link=name)
    reply: DescribeMirrorReply = asked(
        name, mirror, environment, lambda stub: stub.DescribeMirror(request, timeout=CALL_TIMEOUT_S)
    )
    return reply


def print_mirror(reply: DescribeMirrorReply) -> None:
    """A mirror's partitions with their states and lags."""
    rows = [
        (
            one.topic,
            one.partition,
            one.state,
            _known(one.lag_records),
            _known(one.lag_ms),
            one.mirrored_records,
            one.reason,
        )
        for one in reply.partitions
    ]
    title = f"mirror of {reply.link} ({reply.mode or 'not known yet'}): {reply.state}; {reply.reason}"
    if reply.paused_topics:
        title += f"; paused: {', '.join(reply.paused_topics)}"
    if reply.acls:
        title += f"; {reply.acls}"
    if reply.mirror_maker_problem:
        title += f"; {reply.mirror_maker_problem}"
    if reply.HasField("transactions"):
        done = reply.transactions
        title += (
            f"; {done.committed} transactions as {done.transactional_id}, {done.aborted} aborted ({done.fenced} fenced)"
        )
    print_table(title, ("topic", "partition", "state", "lag", "lag ms", "mirrored", "reason"), rows)
    if reply.refused_changes:
        refused = [(one.topic, iso_time(one.since_ms), one.reason, one.way_out) for one in reply.refused_changes]
        print_table("changes that the target refuses", ("topic", "since", "reason", "way out"), refused)
    if reply.group_problems:
        problems = [
            (name, iso_time(dict(reply.groups_stale_since_ms).get(name, -1)), reason)
            for name, reason in sorted(reply.group_problems.items())
        ]
        print_table("offsets that cannot be carried", ("group or broker", "since", "reason"), problems)
    if reply.groups_ahead:
        left = sorted(reply.groups_ahead.items())
        print_table("groups that stay ahead of the source", ("group", "where and why"), left)
    _print_daemons(reply)


def _print_daemons(reply: DescribeMirrorReply) -> None:
    """Print the problems between the daemons that share the link."""
    if reply.failing_daemons:
        failing = sorted(reply.failing_daemons.items())
        print_table("other daemons that cannot carry offsets", ("daemon", "group and reason"), failing)
    if reply.disagreements:
        differing = [(one.key, one.value, one.daemon, one.value_there) for one in reply.disagreements]
        print_table("settings that must be the same in all daemons", ("key", "here", "daemon", "there"), differing)
    if reply.untaken_partitions:
        nobodys = [(one.topic, one.partition, one.daemon) for one in reply.untaken_partitions]
        title = f"partitions that no daemon mirrors ({reply.untaken_count})"
        print_table(title, ("topic", "partition", "in the share of, which does not carry it"), nobodys)


def _known(value: int) -> int | str:
    return "not known" if value < 0 else value


def known_mirrors(name: str, mirror: str | None, environment: Path | None) -> dict[str, str]:
    """The MirrorAdmin addresses of the link's mirrors, by the site that each writes to. The option
    names one, of an unknown site (""); without it the environment file names them, if there is one.
    """
    if mirror is not None:
        try:
            return {"": str(parse_host_port(mirror))}
        except ValueError as error:
            raise usage_error(f"--mirror {mirror!r} is not usable ({error}): accepted is host:port") from error
    found = environment_file(environment)
    if found is not None:
        with failures_as_messages():
            known = open_environment(found).mirrors_of(name)
            return {site: one.grpc for site, one in known.items() if one.grpc}
    return {}


def asked(name: str, mirror: str | None, environment: Path | None, ask: Callable[[Any], Awaitable[Answer]]) -> Answer:
    """The answer of the link's mirror at work: that of the standby, where the environment names a
    mirror for each direction. Ends the command with one message when it does not answer.
    """
    addresses = [*known_mirrors(name, mirror, environment).values()]
    if not addresses:
        raise usage_error(f"say where the mirror of link {name} is: --mirror host:port (its antipode.grpc.listener)")

    async def run() -> Answer:
        import grpc

        from runtime.grpc_server import open_channel
        from wire.control.mirror_pb2_grpc import MirrorAdminStub

        address = addresses[0] if len(addresses) == 1 else await _at_work(addresses)
        async with open_channel(address) as channel:
            try:
                return await ask(MirrorAdminStub(channel))  # type: ignore[no-untyped-call]
            except grpc.aio.AioRpcError as error:
                detail = error.details() or error.code().name
                raise OperationalFailure(f"the mirror at {address}: {detail}") from error

    with failures_as_messages():
        return asyncio.run(run())


async def _at_work(addresses: Sequence[str]) -> str:
    """The first mirror that is not idle; if all are idle or do not answer, the first one."""
    import grpc

    from runtime.grpc_server import open_channel
    from wire.control.mirror_pb2 import DescribeMirrorRequest
    from wire.control.mirror_pb2_grpc import MirrorAdminStub

    async def is_at_work(address: str) -> bool:
        async with open_channel(address) as channel:
            stub = MirrorAdminStub(channel)  # type: ignore[no-untyped-call]
            try:
                reply: DescribeMirrorReply = await stub.DescribeMirror(DescribeMirrorRequest(), timeout=LOOK_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return False
            return not reply.is_resting

    found = await asyncio.gather(*(is_at_work(address) for address in addresses))
    return next((address for address, at_work in zip(addresses, found, strict=True) if at_work), addresses[0])


def _print_pauses(name: str, reply: PauseMirrorReply, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({"link": name, "paused_topics": list(reply.paused_topics), "partitions": reply.partitions})
    elif reply.paused_topics:
        console.print(
            f"link {name}: paused are {', '.join(reply.paused_topics)} ({reply.partitions} partitions)", markup=False
        )
        if not reply.partitions:
            error_console.print("no partition that this mirror carries is meant by that (yet)")
    else:
        console.print(f"link {name}: nothing is paused", markup=False)


def _print_resets(name: str, found: Sequence[ResetTopic], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json([_reset_json(one) for one in found])
        return
    rows = [(one.topic, one.outcome, _offsets(one), _offsets_kept(one), one.reason) for one in found]
    print_table(f"link {name}", ("topic", "outcome", "offsets in the copy", "of these to quarantine", "reason"), rows)
    kept = [
        (f"{one.topic}-{part.partition}", part.kept_from_offset, part.log_end_offset)
        for one in found
        for part in one.partitions
        if part.kept_from_offset < part.log_end_offset
    ]
    if kept:
        print_table(f"to quarantine at the standby of {name}", ("partition", "from offset", "to offset"), kept)


def _reset_json(one: ResetTopic) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "outcome": one.outcome,
        "reason": one.reason,
        "copy_id": one.copy_id,
        "partitions": [
            {
                "partition": part.partition,
                "log_start_offset": part.log_start_offset,
                "log_end_offset": part.log_end_offset,
                "kept_from_offset": part.kept_from_offset,
            }
            for part in one.partitions
        ],
    }


def _meant(topics: Sequence[str] | None) -> str:
    return f"--topic {', '.join(topics)}" if topics else "the link"


def _offsets(one: ResetTopic) -> int:
    return sum(part.log_end_offset - part.log_start_offset for part in one.partitions)


def _offsets_kept(one: ResetTopic) -> int:
    return sum(part.log_end_offset - part.kept_from_offset for part in one.partitions)


def _verified_json(one: VerifiedPartition) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "verdict": one.verdict,
        "from_offset": one.from_offset,
        "to_offset": one.to_offset,
        "batches": one.batches,
        "records": one.records,
        "finding": one.finding,
    }
