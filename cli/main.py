"""The `antipode` command: assembles the subcommands. Each one's module is imported when it is
called, so `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli import (
    brokers,
    configs,
    consume,
    daemons,
    demo,
    drill,
    elect,
    failover,
    groups,
    links,
    log_dirs,
    produce,
    quarantine,
    quotas,
    reassign,
    reconcile,
    status,
    topics,
    transactions,
)
from cli.up import up

HELP = (
    "Geo-replication and disaster recovery for the Kafka protocol.\n\n"
    "Start with `antipode up` (two linked sites on this machine), look with `antipode status`, practise with `antipode drill run`."
)

app = typer.Typer(
    name="antipode",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from runtime import compiled
        from wire.client.connection import installed_version

        typer.echo(f"antipode {installed_version()} (compiled modules: {compiled.describe()})")
        raise typer.Exit


@app.callback(help=HELP)
def options(
    is_version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Say which release this is, and end.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """What concerns no command in particular."""


app.command()(up)
app.command()(demo.demo)
app.command()(daemons.broker)
app.command()(daemons.controller)
app.command()(daemons.mirror)
app.command()(daemons.bridge)
app.command()(status.status)
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(failover.failover)
app.command()(reconcile.reconcile)
app.add_typer(topics.app, name="topics")
app.add_typer(brokers.app, name="brokers")
app.add_typer(configs.app, name="configs")
app.add_typer(quotas.app, name="quotas")
app.add_typer(log_dirs.app, name="log-dirs")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(reassign.app, name="reassign")
app.command()(elect.elect)
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(links.app, name="links")
app.add_typer(drill.app, name="drill")


def main() -> None:
    """Run the command line; the exit code says done (0), failed (1) or wrong usage (2)."""
    app()


if __name__ == "__main__":
    main()
