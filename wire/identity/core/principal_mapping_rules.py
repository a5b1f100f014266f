"""The rules that map the distinguished name of a client's certificate to a principal's name:
Kafka's `ssl.principal.mapping.rules` (KIP-371). Pure.

Rules are tried in their order and separated by commas: `DEFAULT` takes the name as it is,
`RULE:pattern/replacement/` with an L or U after it takes the replacement, where `$1` is the first
group, in lower or upper case. The pattern has to match the whole name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

ACCEPTED: Final = "accepted: rules of the form RULE:pattern/replacement/[L|U], separated by commas, and DEFAULT"

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:[,\n]|$)")
_GROUP: Final = re.compile(r"\$(\d)")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """ValueError names the part that is not a rule."""
        self._rules: list[_Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or found.end() == position:
                raise ValueError(f"{text[position:]!r} begins with no rule; {ACCEPTED}")
            position = found.end()
            self._rules.append(_rule(found))

    def name_of(self, distinguished_name: str) -> str | None:
        """The name by the first rule that matches; None where none does."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            found = rule.pattern.fullmatch(distinguished_name)
            if found is not None:
                name = found.expand(rule.replacement)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        return None


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(found[2])
    except re.error as error:
        raise ValueError(f"the pattern {found[2]!r} is no regular expression ({error}); {ACCEPTED}") from error
    missing = next((digit for digit in _GROUP.findall(found[3]) if int(digit) > pattern.groups), None)
    if missing is not None:
        raise ValueError(f"the pattern {found[2]!r} has no group {missing}; {ACCEPTED}")
    replacement = _GROUP.sub(lambda group: f"\\g<{group[1]}>", found[3].replace("\\", "\\\\"))
    return _Rule(pattern, replacement, found[4])
