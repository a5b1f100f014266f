"""A `sasl.jaas.config` line: a login module's name and its options, as Java's clients and brokers
write it. Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MODULE: Final = re.compile(r"^\s*(?P<module>[\w.$]+)\s+required\b(?P<options>.*?);?\s*$", re.DOTALL)
_OPTION: Final = re.compile(
    r"""(?P<name>[\w.-]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"';]+))"""
)


class LoginModule(NamedTuple):
    """The last part of the module's name, and its options."""

    name: str
    options: dict[str, str]


def parse_jaas(line: str) -> LoginModule | None:
    """Parse a JAAS line; None if the line has another form."""
    found = _MODULE.match(line)
    if found is None:
        return None
    options = {
        option["name"]: re.sub(r"\\(.)", r"\1", option["quoted"])
        if option["quoted"] is not None
        else option["single"] or option["bare"] or ""
        for option in _OPTION.finditer(found["options"])
    }
    return LoginModule(found["module"].rpartition(".")[2], options)
