"""`antipode users`: shows and changes the SCRAM users of a site."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer, ask_cluster, raise_refusal
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from runtime.process import OperationalFailure
from wire.rules.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS, SALT_BYTES, salted_password

if TYPE_CHECKING:
    from wire.client.raw_client import KafkaClient

app = typer.Typer(
    help="Users that log in by SCRAM. A site has its own; brokers keep salted hashes, never passwords.\n\n"
    "Example: antipode users add alice --password-file alice.password",
    no_args_is_help=True,
)

DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51
_NAMES: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}

Name = Annotated[str, typer.Argument(help="The user's name.")]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option("--mechanism", help=f"{' or '.join(HASHES)}; may be repeated. Without it: both."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check whether the change is possible, and change nothing.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="A file whose first line is the password; without it standard input is read."),
]


@app.command(name="list")
def list_users(bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP, output: Output = OutputFormat.TEXT) -> None:
    """All users of the site, with their mechanisms.

    Example: antipode users list --output json
    """
    with failures_as_messages():
        found = ask_cluster(bootstrap_server, _users, is_site_local=True)
    if output is OutputFormat.JSON:
        print_json([{"name": name, "mechanisms": mechanisms} for name, mechanisms in found.items()])
    else:
        rows = [(name, mechanism, str(count)) for name, kinds in found.items() for mechanism, count in kinds.items()]
        print_table("users", ("name", "mechanism", "iterations"), rows)


@app.command()
def add(
    name: Name,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    mechanisms: Mechanisms = None,
    password_file: PasswordFile = None,
    iterations: Annotated[
        int, typer.Option("--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Rounds of the hash.")
    ] = ITERATIONS_MIN,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a user, or change its password. The command reads the password from a file or from
    standard input; only a salted hash leaves this machine.

    Example: antipode users add alice --mechanism SCRAM-SHA-512 --password-file alice.password
    """
    wanted = _wanted(mechanisms)
    password = _password(password_file)
    upsertions = []
    for mechanism in wanted:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        upsertions.append(
            {
                "name": name,
                "mechanism": MECHANISM_NUMBERS[mechanism],
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted,
            }
        )
    _alter(bootstrap_server, {"deletions": (), "upsertions": upsertions}, is_dry_run=is_dry_run)
    _report(name, wanted, "can be added" if is_dry_run else "is added", output=output, is_changed=not is_dry_run)


@app.command()
def remove(
    name: Name,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    mechanisms: Mechanisms = None,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Remove a user's credentials. Connections that are logged in stay open.

    Example: antipode users remove alice
    """
    with failures_as_messages():
        known = ask_cluster(bootstrap_server, _users, is_site_local=True).get(name, {})
        wanted = [mechanism for mechanism in _wanted(mechanisms) if mechanism in known]
        if not wanted:
            raise OperationalFailure(f"{name} has no such credentials: it has {', '.join(known) or 'none'}")
    deletions = [{"name": name, "mechanism": MECHANISM_NUMBERS[mechanism]} for mechanism in wanted]
    _alter(bootstrap_server, {"deletions": deletions, "upsertions": ()}, is_dry_run=is_dry_run)
    _report(name, wanted, "can be removed" if is_dry_run else "is removed", output=output, is_changed=not is_dry_run)


def _wanted(mechanisms: list[str] | None) -> list[str]:
    wanted = [name.upper() for name in mechanisms or HASHES]
    unknown = next((name for name in wanted if name not in HASHES), None)
    if unknown is not None:
        raise usage_error(f"--mechanism {unknown} is not usable: accepted are {' and '.join(HASHES)}")
    return wanted


def _password(file: Path | None) -> str:
    try:
        text = sys.stdin.readline() if file is None else file.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"--password-file {file} cannot be read: {error}") from error
    password = text.rstrip("\r\n")
    if not password:
        raise usage_error("the password is empty: give it in --password-file, or as a line of standard input")
    return password


def _alter(bootstrap_server: str, values: dict[str, Any], *, is_dry_run: bool) -> None:
    from wire.client.requests.answer_checks import lowest_connection

    async def ask(client: KafkaClient) -> None:
        connection = await lowest_connection(client)
        if is_dry_run:
            return
        answer = await connection.call(ALTER_SCRAM, values)
        for result in answer.results:
            raise_refusal(result, f"{result.user} cannot be changed")

    with failures_as_messages():
        ask_cluster(bootstrap_server, ask, is_site_local=True)


def _report(name: str, mechanisms: list[str], what: str, *, output: OutputFormat, is_changed: bool) -> None:
    if output is OutputFormat.JSON:
        print_json({"name": name, "mechanisms": mechanisms, "is_changed": is_changed})
    else:
        console.print(f"user {name} {what} for {' and '.join(mechanisms)}", markup=False)


async def _users(client: KafkaClient) -> dict[str, dict[str, int]]:
    from wire.client.requests.answer_checks import lowest_connection

    answer = await (await lowest_connection(client)).call(DESCRIBE_SCRAM, {"users": None})
    raise_refusal(answer, "users cannot be listed")
    return {
        result.user: {_NAMES[int(info.mechanism)]: info.iterations for info in result.credential_infos}
        for result in answer.results
    }
