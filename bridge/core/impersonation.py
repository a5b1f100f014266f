"""The rules that map an HTTP client to a Kafka user. Pure.

Rules are tried in the order of `impersonation.rules`; the first whose expression matches the whole
name of the HTTP principal gives the options of the Kafka clients that act for it. A name that no
rule matches is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RULES_KEY: Final = "impersonation.rules"
CLIENT_PREFIXES: Final = ("client.", "producer.", "consumer.", "admin.")
RULES_ACCEPTED: Final = "names of rules of letters, digits, _ and -, separated by commas, each once"
OPTION_ACCEPTED: Final = (
    "impersonation.RULE.principals, or an option of Kafka clients after impersonation.RULE.client., .producer., "
    f".consumer. or .admin., RULE being one of {RULES_KEY}"
)
_RULE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_FIXED: Final = ("bootstrap.servers", "client.id", "group.id")


class InvalidRule(ValueError):
    """A rule that cannot be used: the key, the value as far as it may be shown, and what is
    accepted.
    """

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"{key}={value}: accepted: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


@dataclass(frozen=True, slots=True)
class ImpersonationRule:
    """One rule; equal rules share their Kafka clients."""

    name: str
    pattern: re.Pattern[str]
    options: tuple[tuple[str, str], ...] = field(repr=False)
    """Options of Kafka clients with their prefix: `client.`, `producer.`, `consumer.`, `admin.`."""


def read_rules(properties: Mapping[str, str]) -> tuple[ImpersonationRule, ...]:
    """The rules in their order. Raises InvalidRule, which shows no option of a client."""
    names = [name.strip() for name in properties.get(RULES_KEY, "").split(",") if name.strip()]
    if not names or len(set(names)) < len(names) or not all(map(_RULE_NAME.fullmatch, names)):
        raise InvalidRule(RULES_KEY, properties.get(RULES_KEY, "(not set)"), RULES_ACCEPTED)
    for key in properties:
        _, _, rest = key.partition(".")
        name, _, option = rest.partition(".")
        is_known = key.startswith("impersonation.") and name in names
        if key != RULES_KEY and not (is_known and (option == "principals" or option.startswith(CLIENT_PREFIXES))):
            raise InvalidRule(key, "(hidden)", OPTION_ACCEPTED)
        if option.partition(".")[2] in _FIXED:
            raise InvalidRule(key, properties[key], f"no {' and no '.join(_FIXED)}: the bridge's own count")
    return tuple(_rule(name, properties) for name in names)


def rule_of(rules: Sequence[ImpersonationRule], principal: str) -> ImpersonationRule | None:
    """The first rule that matches."""
    return next((rule for rule in rules if rule.pattern.fullmatch(principal)), None)


def _rule(name: str, properties: Mapping[str, str]) -> ImpersonationRule:
    prefix = f"impersonation.{name}."
    key = f"{prefix}principals"
    try:
        pattern = re.compile(properties[key])
    except KeyError:
        raise InvalidRule(key, "(not set)", "a regular expression of names") from None
    except re.error as error:
        raise InvalidRule(key, properties[key], f"a regular expression of names ({error})") from None
    options = {
        given.removeprefix(prefix): value
        for given, value in properties.items()
        if given.startswith(prefix) and given != key
    }
    return ImpersonationRule(name, pattern, tuple(sorted(options.items())))
