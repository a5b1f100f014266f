"""Resolves references in a properties file, such as `${file:/etc/secrets:password}` or
`${env:NAME}`, by Kafka's providers.

Every daemon and `--command-config` read their files through this. `file`, `directory` and `env`
need no configuration. `config.providers=file,env` names others, and `config.providers.file.class`
the class of each (KIP-297, KIP-421). References are replaced in values, never in keys, and not in
the replaced text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from runtime.configuration import ConfigurationError, read_properties

PROVIDERS: Final = "config.providers"

_PLACE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider"


class Provider(NamedTuple):
    """`read` maps a path (may be empty) and a name to the value; LookupError, OSError, ValueError
    or ConfigurationError if there is none. `form` is what its references look like.
    """

    read: Callable[[str, str], str]
    form: str
    needs_path: bool = True


def _from_file(path: str, name: str) -> str:
    return read_properties(Path(path))[name]


def _from_directory(path: str, name: str) -> str:
    return (Path(path) / name).read_text(encoding="utf-8")


def _from_environment(_: str, name: str) -> str:
    return os.environ[name]


_FILE: Final = Provider(_from_file, "${file:PATH:KEY} of a properties file")
_DIRECTORY: Final = Provider(_from_directory, "${directory:PATH:NAME} of a file in a directory")
_ENVIRONMENT: Final = Provider(_from_environment, "${env:NAME} of an environment variable", needs_path=False)
_ALWAYS: Final[Mapping[str, Provider]] = {"file": _FILE, "directory": _DIRECTORY, "env": _ENVIRONMENT}

_KNOWN: Mapping[str, Provider] = {
    f"{_PACKAGE}.FileConfigProvider": _FILE,
    f"{_PACKAGE}.DirectoryConfigProvider": _DIRECTORY,
    f"{_PACKAGE}.EnvVarConfigProvider": _ENVIRONMENT,
}


def looked_up(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with their references replaced. ConfigurationError for a provider or a value
    that does not exist.
    """
    providers = {**_ALWAYS, **{name: _provider(properties, name) for name in _names(properties)}}
    return {key: _PLACE.sub(partial(_replace, key, providers), value) for key, value in properties.items()}


def _names(properties: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in properties.get(PROVIDERS, "").split(",") if name.strip()]


def _provider(properties: Mapping[str, str], name: str) -> Provider:
    key = f"{PROVIDERS}.{name}.class"
    found = _KNOWN.get(properties.get(key, ""))
    if found is None:
        raise ConfigurationError(key, properties.get(key, "(not set)"), f"one of {', '.join(_KNOWN)}")
    return found


def _replace(key: str, providers: Mapping[str, Provider], found: re.Match[str]) -> str:
    provider = providers.get(found[1])
    if provider is None:
        return found[0]
    if provider.needs_path and not found[2]:
        raise ConfigurationError(key, found[0], f"the path or the name is missing; accepted: {provider.form}")
    try:
        return provider.read(found[2] or "", found[3])
    except (LookupError, OSError, ValueError, ConfigurationError) as error:
        accepted = f"{_reason(error, found[2], found[3])}; accepted: {provider.form}"
        raise ConfigurationError(key, found[0], accepted) from error


def _reason(error: Exception, path: str | None, name: str) -> str:
    """The reason, without any content of the place that was read."""
    if isinstance(error, KeyError):
        return f"{path} has no key {name}" if path else f"the environment has no variable {name}"
    if isinstance(error, ConfigurationError):
        return f"{error.value}: {error.accepted}"
    if isinstance(error, OSError):
        return f"{error.filename}: the file cannot be read ({error.strerror})"
    return f"{path}/{name}: the file is no text in UTF-8"
