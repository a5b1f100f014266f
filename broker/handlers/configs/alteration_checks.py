"""The checks of a request that alters configs, for all kinds of resources. Shared by
IncrementalAlterConfigs and AlterConfigs; the messages are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Checked(NamedTuple):
    """The resources to alter, and those that are refused with INVALID_REQUEST and this message."""

    accepted: tuple[Any, ...]
    refused: tuple[tuple[Any, str], ...]


def checked(resources: Sequence[Any], *, needs_value: Callable[[Any], bool]) -> Checked:
    """Check the resources of a request: each appears once, with each config once and with a value.
    `needs_value` returns False for a config that is only removed.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    accepted, refused = [], []
    for resource in resources:
        problem = _problem(resource, needs_value)
        if named[resource.resource_type, resource.resource_name] > 1:
            problem = "Each resource must appear at most once."
        if problem:
            refused.append((resource, problem))
        else:
            accepted.append(resource)
    return Checked(tuple(accepted), tuple(refused))


def _problem(resource: Any, needs_value: Callable[[Any], bool]) -> str:
    if _has_repeated(config.name for config in resource.configs):
        return "Error due to duplicate config keys"
    missing = [config.name for config in resource.configs if config.value is None and needs_value(config)]
    return f"configs without a value: {', '.join(missing)}; accepted: a value, or DELETE" if missing else ""


def _has_repeated(names: Iterable[str]) -> bool:
    return any(count > 1 for count in Counter(names).values())
