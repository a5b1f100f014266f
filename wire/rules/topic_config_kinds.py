"""One topic config: its kind, its default, the values that it accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
ALL_REPLICAS: Final = "*"
NO_REPLICAS: Final = "none"
REPLICAS: Final = re.compile(rf"{NO_REPLICAS}|\*|\d+:\d+")
REPLICAS_ACCEPTED: Final = "'*', 'none', or a list of replicas as partition:broker,partition:broker"


class ConfigKind(StrEnum):
    """Types of values, by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


def list_items(text: str) -> list[str]:
    """The items of a list of configs, without blanks around them."""
    return [item for part in text.split(",") if (item := part.strip())]


def changed_list(current: str, items: Iterable[str], *, is_removal: bool) -> str:
    """A list with the items that it lacks at its end, or (`is_removal`) without the items: APPEND
    and SUBTRACT of IncrementalAlterConfigs.
    """
    listed, given = list_items(current), list(items)
    if is_removal:
        return ",".join(item for item in listed if item not in given)
    return ",".join([*listed, *(item for item in given if item not in listed)])


class InvalidTopicConfig(ValueError):
    """A config is unknown, its value is not accepted, or it contradicts another; `accepted`
    describes valid values.
    """

    def __init__(self, message: str, *, key: str = "", value: str = "", accepted: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.value = value
        self.accepted = accepted


class BrokerProperty(NamedTuple):
    """A broker-wide counterpart and the factor that turns its unit into the topic's."""

    name: str
    factor: int = 1


class TopicConfig(Struct, frozen=True, kw_only=True):
    """One topic configuration. `minimum` and `maximum` bound numbers; `choices` are the accepted
    values, or `pattern` matches each.
    """

    name: str
    kind: ConfigKind
    default: str
    documentation: str
    broker_properties: tuple[BrokerProperty, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    excluded: tuple[float, ...] = ()
    choices: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    pattern_accepted: str = ""

    def parse(self, text: str) -> bool | int | float | str:
        """The checked value of `text`; raises InvalidTopicConfig."""
        stripped = text.strip()
        match self.kind:
            case ConfigKind.BOOLEAN:
                return self._accepted(stripped.lower(), text, ("true", "false")) == "true"
            case ConfigKind.INT | ConfigKind.LONG | ConfigKind.DOUBLE:
                return self._number(stripped, text)
            case ConfigKind.STRING:
                return self._accepted(stripped, text, self.choices)
            case ConfigKind.LIST:
                return ",".join(self._accepted(item, text, self.choices) for item in self._items(text))

    def shown(self, text: str) -> str:
        """The value as Kafka shows it: without blanks around it, `true` for TRUE. A text that is
        not accepted is shown as it is.
        """
        try:
            value = self.parse(text)
        except InvalidTopicConfig:
            return text
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse_as(self, name: str, text: str) -> bool | int | float | str:
        """Parse the value of a broker property like `parse`; a refusal names the property
        `name`.
        """
        try:
            return self.parse(text)
        except InvalidTopicConfig as refusal:
            raise self.refusal(text, str(refusal).partition(": ")[2], key=name) from None

    def _items(self, text: str) -> list[str]:
        """The items of a list. A list may be empty; an item may be in a list of replicas only, and
        what stands for all or no replicas is alone in its list.
        """
        items = list_items(text)
        if self.choices and text.strip() and len(items) <= text.count(","):
            raise self.refusal(text, "Values must not be empty")
        if len(items) > 1 and not {ALL_REPLICAS, NO_REPLICAS}.isdisjoint(items):
            raise self.refusal(text, f"Value must be {self.pattern_accepted}")
        return items

    def _accepted(self, value: str, text: str, accepted: tuple[str, ...]) -> str:
        if accepted and value not in accepted:
            raise self.refusal(text, f"String must be one of: {', '.join(accepted)}")
        if self.pattern is not None and not self.pattern.fullmatch(value):
            raise self.refusal(text, f"Value must be {self.pattern_accepted}")
        return value

    def _number(self, value: str, text: str) -> int | float:
        try:
            # Python reads 1_000 as a number, Java does not
            digits = value.replace("_", "?")
            number: int | float = float(digits) if self.kind is ConfigKind.DOUBLE else int(digits)
        except ValueError:
            raise self.refusal(text, f"Not a number of type {self.kind.value}") from None
        limit = INT_MAX if self.kind is ConfigKind.INT else LONG_MAX
        if self.kind is not ConfigKind.DOUBLE and not -limit - 1 <= number <= limit:
            raise self.refusal(text, f"Not a number of type {self.kind.value}")
        # not (a <= b) also refuses NaN
        if self.minimum is not None and not number >= self.minimum:
            raise self.refusal(text, f"Value must be at least {self.minimum:g}")
        if self.maximum is not None and not number <= self.maximum:
            raise self.refusal(text, f"Value must be no more than {self.maximum:g}")
        if number in self.excluded:
            raise self.refusal(text, f"Value must not be {number:g}")
        return number

    def refusal(self, value: str, problem: str, *, key: str = "") -> InvalidTopicConfig:
        """Kafka's own text, under the name `key` when the value is a broker property's."""
        name = key or self.name
        message = f"Invalid value {value} for configuration {name}: {problem}"
        return InvalidTopicConfig(message, key=name, value=value, accepted=self.accepted)

    @property
    def accepted(self) -> str:
        """The accepted values, as text."""
        if self.kind is ConfigKind.BOOLEAN:
            return "true or false"
        if self.choices:
            joined = ", ".join(self.choices)
            return f"a comma-separated list of {joined}" if self.kind is ConfigKind.LIST else f"one of {joined}"
        if self.kind in (ConfigKind.STRING, ConfigKind.LIST):
            return self.pattern_accepted or "any text"
        value = "a number" if self.kind is ConfigKind.DOUBLE else "a whole number"
        bounds = f", at least {self.minimum:g}" if self.minimum is not None else ""
        bounds += f", at most {self.maximum:g}" if self.maximum is not None else ""
        return f"{value}{bounds}" + "".join(f", not {number:g}" for number in self.excluded)
