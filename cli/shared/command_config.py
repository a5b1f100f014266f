"""`--command-config FILE`: the credentials of a command, in a properties file as for Kafka's tools.

The file has Kafka's client options (`security.protocol`, `ssl.*`, `sasl.*`) for brokers and
`antipode.control.*` for the control plane. Every command that reaches a site takes the option;
`add_command_config` puts it there, so that it means the same everywhere. An environment file of
`antipode up --secure` names an operator's file, which counts where the option is not given.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.shared.failures import usage_error
from runtime.config_providers import looked_up
from runtime.configuration import ConfigurationError, UnreadableFile, read_properties, similar_key

OPTION: Final = "--command-config"
VARIABLE: Final = "ANTIPODE_COMMAND_CONFIG"
_HELP: Final = "Properties file with Kafka's client options for brokers and antipode.control.* for the control plane."


class _Given:
    """The file of this process."""

    properties: dict[str, str] | None = None
    file: Path | None = None


def kafka_options() -> dict[str, str]:
    """Kafka's client options of the file; empty without one."""
    given = _Given.properties or {}
    return {key: value for key, value in given.items() if not key.startswith("antipode.")}


def is_given() -> bool:
    """True if a file of client properties was given."""
    return _Given.properties is not None


def use_command_config(file: Path) -> None:
    """Have this process's clients use the file. ConfigurationError."""
    from wire.access.protection import protect_client

    properties = looked_up(read_properties(file))
    protect_client(properties)
    _warn_of_unknown(file, properties)
    _Given.properties = properties
    _Given.file = file
    options = kafka_options()
    if options:
        from wire.client.security import load_security, secure_clients

        secure_clients(load_security(options))


def _warn_of_unknown(file: Path, properties: Mapping[str, str]) -> None:
    """Print a line for each key that is probably misspelt. A file for Kafka's tools may have other
    keys of theirs, which have no effect here.
    """
    from wire.access.settings import CONTROL_KEYS
    from wire.access.zookeeper import ZOOKEEPER_KEYS
    from wire.client.security import SECURITY_KEYS

    known = {*SECURITY_KEYS, *CONTROL_KEYS, *ZOOKEEPER_KEYS}
    for key in sorted(properties.keys() - known):
        if meant := similar_key(key, known):
            typer.echo(
                f"{OPTION} {file}: the key {key} is not known and has no effect: did you mean {meant}?", err=True
            )


def command_config_environment() -> dict[str, str]:
    """The variable by which Spark's workers find the file; nothing without one."""
    return {} if _Given.file is None else {VARIABLE: str(_Given.file.absolute())}


def use_command_config_unless_given(file: Path) -> None:
    """Use a file that an environment names, unless another one was given. Raises
    ConfigurationError.
    """
    if not is_given():
        use_command_config(file)


Command = Callable[..., Any]
_Option = Annotated[Path | None, typer.Option(OPTION, help=_HELP, envvar=VARIABLE)]
_PARAMETER: Final = "command_config"


def with_command_config(command: Command) -> Command:
    """The command with the option; the file counts before the command runs."""
    signature = inspect.signature(command, eval_str=True)
    if _PARAMETER in signature.parameters:
        return command

    @functools.wraps(command)
    def configured(*arguments: Any, command_config: Path | None = None, **options: Any) -> Any:
        if command_config is not None:
            try:
                use_command_config(command_config)
            except UnreadableFile as error:
                raise usage_error(f"{OPTION} {error}") from error
            except ConfigurationError as error:
                raise usage_error(f"{OPTION} {command_config}: {error}") from error
        return command(*arguments, **options)

    option = inspect.Parameter(_PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Option)
    parameters = [*signature.parameters.values(), option]
    configured.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    configured.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return configured


def add_command_config(app: typer.Typer) -> None:
    """Give the option to every command of a group, and of the groups below it, and to a group that
    is a command itself.
    """
    own = app.registered_callback
    if own is not None and own.callback is not None and app.info.invoke_without_command is True:
        own.callback = with_command_config(own.callback)
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback = with_command_config(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_command_config(group.typer_instance)
