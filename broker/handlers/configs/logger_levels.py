"""Log levels that are altered while the broker runs (KIP-412): the loggers of this process as
configs of the broker's resource.

Levels are not stored: a restart restores the levels with which the process is started, as in Kafka.
Called by the config handlers.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from broker.handlers.configs.config_requests import DONE, Outcome
from broker.settings.core.broker_configs import Operation, PropertyChange
from runtime.logs import LEVELS_BY_KAFKAS_NAMES, ROOT, get_logger, logger_levels, set_logger_level

LOGGER_RESOURCE = 8
log = get_logger(__name__)


def refusal_of(name: str, *, node_id: int) -> Outcome:
    """The error if the resource is not this broker's loggers; DONE if it is."""
    if name == str(node_id):
        return DONE
    return (
        ErrorCode.invalid_request,
        f"Unexpected broker id, expected {node_id}, but received {name or 'an empty string'}",
    )


def alter_loggers(changes: Iterable[PropertyChange], *, is_validate_only: bool) -> Outcome:
    """Set these levels, or let loggers follow their parents again; all or none."""
    asked, known = list(changes), logger_levels()
    for change in asked:
        problem = _problem(change, known)
        if problem:
            is_root_removed = change.operation is Operation.DELETE and change.name == ROOT
            is_impossible = change.operation > Operation.DELETE or is_root_removed
            return (ErrorCode.invalid_request if is_impossible else ErrorCode.invalid_config), problem
    for change in asked if not is_validate_only else ():
        level = change.value if change.operation is Operation.SET else None
        set_logger_level(change.name, level)
        log.info("log level changed", changed_logger=change.name, to=level or "as its parent")
    return DONE


def _problem(change: PropertyChange, known: Iterable[str]) -> str:
    if change.name not in known:
        return f"Logger {change.name} does not exist!"
    match change.operation:
        case Operation.SET if change.value not in LEVELS_BY_KAFKAS_NAMES:
            levels = ", ".join(LEVELS_BY_KAFKAS_NAMES)
            return (
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {levels}"
            )
        case Operation.DELETE if change.name == ROOT:
            return f"Removing the log level of the {ROOT} logger is not allowed"
        case Operation.APPEND | Operation.SUBTRACT:
            return f"{change.operation.name} operation is not allowed for the {change.name} logger"
    return ""
