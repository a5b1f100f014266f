"""Options that say where sites are, the same in every command: an environment file (what
`antipode up --output json` prints) or gRPC addresses of a site's brokers by name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.shared.command_config import use_command_config_unless_given
from cli.shared.failures import failures_as_messages, usage_error
from runtime.addresses import parse_host_ports

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from dr.sites.site_client import SiteClient

DEFAULT_ENVIRONMENT = Path("out/sites/environment.json")
_ENVIRONMENTS = (
    f"`antipode up` keeps environment.json in its --dir, and {DEFAULT_ENVIRONMENT} is not there in this directory"
)

EnvironmentFile = Annotated[
    Path | None,
    typer.Option(
        "--environment",
        "-e",
        help="JSON that `antipode up --output json` prints; without it and --site, "
        f"{DEFAULT_ENVIRONMENT} is used when it is there.",
        envvar="ANTIPODE_ENVIRONMENT",
    ),
]
SiteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--site", "-s", help="A site and its brokers' gRPC addresses, name=host:port[,host:port]; once a site."
    ),
]

Agents = dict[str, tuple[str, ...]]


def environment_file(file: Path | None) -> Path | None:
    """The file given, or the default one when it exists."""
    if file is None and DEFAULT_ENVIRONMENT.exists():
        return DEFAULT_ENVIRONMENT
    return file


def needed_environment(file: Path | None) -> Path:
    """The file that `environment_file` finds; raises a usage error when there is none."""
    found = environment_file(file)
    if found is None:
        raise usage_error(f"give --environment FILE: {_ENVIRONMENTS}")
    return found


def open_environment(file: Path) -> Environment:
    """The environment in the file; of secured sites, with the operator's credentials unless others
    were given. Raises OperationalFailure.
    """
    from dr.drill.environment import load_environment

    known = load_environment(file)
    if known.security is not None:
        use_command_config_unless_given(known.security.command_config)
    return known


def agents(file: Path | None, sites: Iterable[str] | None) -> Agents:
    """gRPC addresses by site from both options; those of --site win. A file that cannot be used
    ends the command with one message.
    """
    given = dict(_site(text) for text in sites or ())
    found = environment_file(file) if file is not None or not given else None
    if found is None and not given:
        raise usage_error(
            f"say where the sites are: --environment FILE, or --site name=host:port for each site; {_ENVIRONMENTS}"
        )
    with failures_as_messages():
        known = open_environment(found).agents() if found is not None else {}
    return {**known, **given}


def _site(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, addresses = text.partition("=")
    try:
        parsed = tuple(str(address) for address in parse_host_ports(addresses))
    except ValueError as error:
        raise usage_error(f"--site {text!r} is not usable ({error}): accepted is name=host:port[,host:port]") from error
    if not name.strip():
        raise usage_error(f"--site {text!r} names no site: accepted is name=host:port[,host:port]")
    return name.strip(), parsed


@asynccontextmanager
async def site_clients(known: Agents) -> AsyncIterator[dict[str, SiteClient]]:
    """A client for each site, for the time of the block."""
    from dr.sites.channels import Channels
    from dr.sites.site_client import COMMAND_PATIENCE_MS, SiteClient

    channels = Channels()
    try:
        yield {
            name: SiteClient(name, addresses, channels, patience_ms=COMMAND_PATIENCE_MS)
            for name, addresses in known.items()
        }
    finally:
        await channels.close()
