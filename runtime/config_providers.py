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
from typing import Final

from runtime.configuration import ConfigurationError, read_properties

PROVIDERS: Final = "config.providers"

_PLACE = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_PACKAGE = "org.apache.kafka.common.config.provider"

Provider = Callable[[str, str], str]
"""Maps a path (may be empty) and a name to the value. Raises LookupError, OSError or
ConfigurationError if there is no value.
"""


def _from_file(path: str, name: str) -> str:
    return read_properties(Path(path))[name]


def _from_directory(path: str, name: str) -> str:
    return (Path(path) / name).read_text(encoding="utf-8")


def _from_environment(_: str, name: str) -> str:
    return os.environ[name]


_ALWAYS: Final[Mapping[str, Provider]] = {"file": _from_file, "directory": _from_directory, "env": _from_environment}

_KNOWN: Mapping[str, Provider] = {
    f"{_PACKAGE}.FileConfigProvider": _from_file,
    f"{_PACKAGE}.DirectoryConfigProvider": _from_directory,
    f"{_PACKAGE}.EnvVarConfigProvider": _from_environment,
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
    try:
        return provider(found[2] or "", found[3])
    except (LookupError, OSError, ConfigurationError) as error:
        why = f"{found[3]} does not exist" if isinstance(error, KeyError) else str(error)
        raise ConfigurationError(key, found[0], f"a provider path and key that can be read ({why})") from error
