"""The `antipode` command: assembles the subcommands. The module of a subcommand is
imported when the subcommand is called, so that daemons start quickly.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import typer

from cli.shared.command_config import add_command_config, with_command_config
from cli.shared.failures import end_by_sigterm_as_by_ctrl_c, print_error
from cli.shared.named_values import name_values
from cli.shared.standard_streams import OutputFailed, prepare_standard_streams
from runtime.garbage import expect_no_garbage
from runtime.logs import configure
from runtime.process import ExitCode

HELP = (
    "Geo-replication and disaster recovery for the Kafka protocol.\n\n"
    "Start with `antipode up` (two linked sites on this machine), look with `antipode status`, practise with `antipode drill run`."
)

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": ("cli.processes.up", "up"),
    "demo": ("cli.processes.demo", "demo"),
    "broker": ("cli.processes.daemons", "broker"),
    "controller": ("cli.processes.daemons", "controller"),
    "mirror": ("cli.processes.daemons", "mirror"),
    "bridge": ("cli.processes.daemons", "bridge"),
    "status": ("cli.administration.status", "status"),
    "produce": ("cli.clients.produce", "produce"),
    "consume": ("cli.clients.consume", "consume"),
    "failover": ("cli.recovery.failover", "failover"),
    "switchover": ("cli.recovery.switchover", "switchover"),
    "failovers": ("cli.recovery.failovers", "app"),
    "rehearse": ("cli.recovery.rehearse", "rehearse"),
    "reconcile": ("cli.spark.reconcile", "reconcile"),
    "repair": ("cli.recovery.repair", "repair"),
    "audit": ("cli.spark.audit", "app"),
    "archive": ("cli.spark.archive", "app"),
    "restore": ("cli.spark.restore", "restore"),
    "pipeline": ("cli.spark.pipeline", "app"),
    "spark-cluster": ("cli.spark.spark_cluster", "spark_cluster"),
    "checkpoint": ("cli.spark.checkpoint", "app"),
    "elect": ("cli.administration.elect", "elect"),
    "topics": ("cli.administration.topics", "app"),
    "brokers": ("cli.administration.brokers", "app"),
    "configs": ("cli.administration.configs", "app"),
    "acls": ("cli.administration.acls", "app"),
    "quotas": ("cli.administration.quotas", "app"),
    "users": ("cli.administration.users", "app"),
    "log-dirs": ("cli.administration.log_dirs", "app"),
    "quarantine": ("cli.recovery.quarantine", "app"),
    "reassign": ("cli.administration.reassign", "app"),
    "groups": ("cli.administration.groups", "app"),
    "transactions": ("cli.administration.transactions", "app"),
    "links": ("cli.links.links", "app"),
    "drill": ("cli.recovery.drill", "app"),
    "credentials": ("cli.administration.credentials", "app"),
}
"""Module and name of each command, in the order of the help: a function, or the app of a group."""
DAEMONS: Final = frozenset({"up", "demo", "broker", "controller", "mirror", "bridge"})
"""Commands that run until a signal ends them: `run_daemon` handles it. They have no
`--command-config`, because they have their own configuration, or connect to no site.
"""


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from runtime import compiled
        from wire.client.connection import installed_version

        typer.echo(f"antipode {installed_version()} (compiled modules: {compiled.describe()})")
        raise typer.Exit


def options(
    is_version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Print the release, and end.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """The options without a command."""


def assemble(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command with these of its subcommands; the modules of the others are not imported."""
    app = typer.Typer(
        name="antipode",
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=HELP)(options)
    for name in names:
        module, attribute = COMMANDS[name]
        command = getattr(importlib.import_module(module), attribute)
        takes_config = name not in DAEMONS
        if isinstance(command, typer.Typer):
            if takes_config:
                add_command_config(command)
            app.add_typer(command, name=name)
        else:
            app.command(name)(with_command_config(command) if takes_config else command)
    name_values(app)
    return app


def main() -> None:
    """Run the command line; the exit code says done (0), failed (1) or wrong usage (2). A file that
    cannot be read or written is one message.
    """
    expect_no_garbage()
    prepare_standard_streams()
    # standard output is for the result alone; a daemon configures its log again
    configure("antipode", level="WARNING")
    # it reports each attempt to connect; a command reports the failure once
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    try:
        _run(sys.argv[1:2])
    except KeyboardInterrupt:
        # before the command itself handles it: its modules are still imported
        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.FAILED)


def _run(first: Sequence[str]) -> None:
    """`first`: the name of the command, if there is one."""
    if not DAEMONS.intersection(first):
        end_by_sigterm_as_by_ctrl_c()
    try:
        assemble(first if first and first[0] in COMMANDS else COMMANDS)()
    except OutputFailed as failure:
        print_error(str(failure))
        sys.exit(ExitCode.FAILED)
    except OSError as failure:
        if failure.filename is None:
            raise
        print_error(f"{failure.filename}: {failure.strerror}")
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
