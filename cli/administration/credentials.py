"""`antipode credentials authority`, `certificate`, `token`, `password` and `znodes`."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from cli.credentials.authority import (
    AUTHORITY_CERTIFICATE,
    AUTHORITY_DAYS,
    AUTHORITY_KEY,
    CERTIFICATE_DAYS,
    PRIVATE,
    is_host,
    load_authority,
    make_authority,
    save_authority,
    write_file,
)
from cli.credentials.passwords import with_user
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, print_json
from runtime.process import OperationalFailure
from wire.access.core.callers import NAME_ACCEPTED, UnusableName, hash_of, role_uri, token_line
from wire.access.core.roles import Role

TOKEN_BYTES = 32

app = typer.Typer(
    no_args_is_help=True,
    help="Certificates and tokens for the control plane, and ACLs of znodes.",
)

Directory = Annotated[Path, typer.Option("--dir", help="The authority's directory.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would be written, write nothing.")]
Name = Annotated[str, typer.Option(help=f"The holder of the certificate: {NAME_ACCEPTED}.")]
RoleOption = Annotated[Role, typer.Option(help="The rights of the holder: docs/security.md has the table.")]


@app.command()
def authority(
    directory: Directory,
    name: Annotated[str, typer.Option(help="The authority's name, in its certificate.")] = "Antipode",
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long its certificate is valid.")] = AUTHORITY_DAYS,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a certificate authority: ca.pem, which every process trusts, and ca.key, which stays
    here.

    Keep the directory away from the machines that run brokers: with ca.key, a reader can make a
    certificate of any role.

    Example: antipode credentials authority --dir authority
    """
    with failures_as_messages():
        files = [directory / AUTHORITY_CERTIFICATE, directory / AUTHORITY_KEY]
        existing = [str(file) for file in files if file.exists()]
        if existing:
            raise OperationalFailure(f"{' and '.join(existing)} exist already: give another --dir, or remove them")
        if not is_dry_run:
            save_authority(make_authority(name, days=days), directory)
        _report(output, {"authority": str(files[0]), "key": str(files[1]), "days": days}, is_dry_run=is_dry_run)


@app.command()
def certificate(
    directory: Directory,
    role: RoleOption,
    name: Name,
    file: Annotated[Path, typer.Option("--file", help="File for the key and its certificate, as one PEM.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A DNS name or address at which other processes reach it; may be given again."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is valid.")] = CERTIFICATE_DAYS,
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a key and a certificate with a role, for a broker, a mirror, an operator or a viewer.

    Brokers and mirrors are servers: give each name and address by which other processes reach them.
    A running process reads a file that is replaced at the next connection.

    Example: antipode credentials certificate --dir authority --role broker --name a-1
    --host a1.example.org --file a1.pem
    """
    try:
        uri = role_uri(role, name)
    except UnusableName as error:
        raise usage_error(f"--name: {error}") from error
    hosts = host or []
    if role in (Role.BROKER, Role.MIRROR) and not hosts:
        raise usage_error(f"a {role} is a server: give --host, each name and address by which others reach it")
    for one in hosts:
        if not is_host(one):
            raise usage_error(f"--host {one!r} is not usable: accepted is a DNS name or an IP address, without a port")
    with failures_as_messages():
        opened = load_authority(directory)
        if not is_dry_run:
            write_file(file, opened.issue(common_name=name, uris=[uri], hosts=hosts, days=days), mode=PRIVATE)
        facts = {"file": str(file), "uri": uri, "hosts": hosts, "days": days}
        _report(output, facts, is_dry_run=is_dry_run)


@app.command()
def token(
    role: RoleOption,
    name: Name,
    file: Annotated[Path, typer.Option("--file", help="File for the token; only its owner may read it.")],
    tokens: Annotated[
        Path,
        typer.Option(
            "--tokens", help="The servers' file of hashes (antipode.control.tokens.location): a line is added."
        ),
    ],
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a token with a role, for programs that cannot have a certificate of their own.

    The token goes into one file, and only its hash into the other. Servers read the file of hashes
    again when it changes; remove a line to withdraw its token.

    Example: antipode credentials token --role viewer --name grafana --file grafana.token
    --tokens tokens
    """
    secret = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        line = token_line(name, role, secret)
    except UnusableName as error:
        raise usage_error(f"--name: {error}") from error
    with failures_as_messages():
        if not is_dry_run:
            known = tokens.read_text(encoding="utf-8") if tokens.exists() else ""
            separator = "" if not known or known.endswith("\n") else "\n"
            write_file(file, secret + "\n", mode=PRIVATE)
            write_file(tokens, f"{known}{separator}{line}\n", mode=PRIVATE)
        facts = {"file": str(file), "tokens": str(tokens), "name": name, "role": role.value}
        _report(output, {**facts, "hash": hash_of(secret)}, is_dry_run=is_dry_run)


@app.command()
def password(
    name: Annotated[str, typer.Option(help="The user who logs in at the HTTP bridge.")],
    users: Annotated[Path, typer.Option("--users", help="The bridge's file (antipode.authentication.users.location).")],
    file: Annotated[Path, typer.Option("--password-file", help="Its first line is the password.")],
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Set the password of a user of the HTTP bridge: add or replace the line with its hash.

    Hashes are bcrypt's, as those of htpasswd -B. The bridge reads its file again when it changes;
    remove a line to remove its user.

    Example: antipode credentials password --name alice --users bridge.users --password-file
    alice.password
    """
    with failures_as_messages():
        known = users.read_text(encoding="utf-8") if users.exists() else ""
        given = _first_line(file)
        try:
            text = with_user(known, name, given)
        except ValueError as error:
            raise usage_error(f"--name or --password-file: {error}") from error
        if not is_dry_run:
            write_file(users, text, mode=PRIVATE)
        _report(output, {"users": str(users), "name": name}, is_dry_run=is_dry_run)


@app.command()
def znodes(
    zookeeper: Annotated[str, typer.Option("--zookeeper", help="host:port,host:port... of a site, with its chroot.")],
    is_dry_run: DryRun = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Set the ACLs of a site's existing znodes to those of new znodes, after the site has set
    zookeeper.set.acl=true.

    --command-config names a file with zookeeper.sasl.username, zookeeper.sasl.password and
    zookeeper.set.acl=true; with zookeeper.set.acl=false the znodes become open to all again, as
    Apache Kafka's zookeeper-security-migration does it.

    Example: antipode credentials znodes --zookeeper zk1.a.example.org:2181
    --command-config ops.properties --dry-run
    """
    from cli.credentials.znode_acls import set_acls

    with failures_as_messages():
        changed, looked_at = asyncio.run(set_acls(zookeeper, is_dry_run=is_dry_run))
        facts: dict[str, object] = {"zookeeper": zookeeper, "znodes": looked_at, "changed": changed}
        _report(output, facts, is_dry_run=is_dry_run)


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0]
    except UnicodeDecodeError as error:
        raise usage_error(f"--password-file {file} cannot be read: {error}; accepted is a file in UTF-8") from error


def _report(output: OutputFormat, facts: dict[str, object], *, is_dry_run: bool) -> None:
    if output is OutputFormat.JSON:
        print_json({**facts, "is_dry_run": is_dry_run})
        return
    if is_dry_run:
        typer.echo("nothing was written; this would be:")
    for key, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        typer.echo(f"{key:<10}{shown}")
