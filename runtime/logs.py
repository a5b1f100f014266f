"""Structured logs: one line of `key=value` for each event, to standard error or a file. State
changes and audit lines can go to files of their own.

Core modules never log; the others log the reason of a decision with ids and epochs as fields.
Changes of leaderships, links and roles of sites go only to the `state_change` logger, whose file an
operator reads first. Requested changes and refusals go to `antipode.audit`
(`runtime/security/audit.py`).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from runtime.hidden_modules import hidden

# structlog imports it for colours in a terminal, which takes 30 ms out of every start
with hidden("rich"):
    import structlog
    from structlog.typing import Processor

STATE_CHANGE = "state_change"
AUDIT = "antipode.audit"

ROOT = "root"
LEVELS_BY_KAFKAS_NAMES = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Log levels by the names that Kafka's administrators use, the most verbose one first."""

_FIRST_FIELDS = ("timestamp", "level", "logger", "event")


class OneLine(structlog.processors.LogfmtRenderer):
    """A line of `key=value` in which characters that are not printable are escaped: a value that a
    client sends must neither look like another line nor reach a terminal as a command.
    """

    def __call__(self, logger: Any, name: str, event_dict: MutableMapping[str, Any]) -> str:
        line = super().__call__(logger, name, event_dict)
        return line if line.isprintable() else "".join(map(_printable, line))


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


_PROCESSORS: list[Processor] = [
    # first: a line below the logger's level costs a tenth of one that is rendered and then dropped
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    OneLine(key_order=_FIRST_FIELDS, bool_as_flag=False),
]
# The list object never changes: a logger keeps the list of its first use, so tests that capture
# logs replace the contents of the list.


def configure(
    process: str,
    *,
    level: str = "INFO",
    file: Path | None = None,
    state_change_file: Path | None = None,
    audit_file: Path | None = None,
) -> None:
    """Set up logging for the process. `file` None means standard error; state changes and audit
    lines go to the same place unless they are given one.
    """
    structlog.configure(
        processors=_PROCESSORS,
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    root = logging.getLogger()
    root.handlers[:] = [_handler(file)]
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    for name, apart in ((STATE_CHANGE, state_change_file), (AUDIT, audit_file)):
        if apart is not None:
            logger = logging.getLogger(name)
            logger.handlers[:] = [_handler(apart)]
            logger.propagate = False


def _handler(file: Path | None) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that takes an event and fields:
    `log.info("leader elected", topic=..., epoch=...)`.
    """
    # registers the name, so that its level can be altered before its first line
    logging.getLogger(name)
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def state_change_logger() -> structlog.stdlib.BoundLogger:
    """The logger for leadership, link and site-role changes."""
    return get_logger(STATE_CHANGE)


_render_fields = OneLine(bool_as_flag=False)
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_.:/-]+")


class LogLines:
    """Collects lines of level INFO and writes them at once: for thousands of lines, single calls
    cost more than the text. No field may have the name of one that all lines have.
    """

    def __init__(self, logger: str, event: str = "") -> None:
        """`event` is that of the lines that are added without one."""
        self._logger = logging.getLogger(logger)
        self._event = event
        self._rows: list[tuple[str, dict[str, Any]]] = []

    def add(self, *, event: str = "", **fields: object) -> None:
        """Add a line."""
        self._rows.append((event or self._event, fields))

    def write(self) -> None:
        """Write the collected lines."""
        rows, self._rows = self._rows, []
        if not rows or not self._logger.isEnabledFor(logging.INFO):
            return
        *processors, render = structlog.get_config()["processors"]
        # The fields that all lines share are made once: the lines are of the same moment.
        shared: Any = {"event": ""}
        for processor in processors:
            shared = processor(self._logger, "info", shared)
        del shared["event"]
        if isinstance(render, structlog.processors.LogfmtRenderer):
            first = self._rendered({name: shared.pop(name) for name in _FIRST_FIELDS if name != "event"})
            last = self._rendered(shared)
            events = {event: _fields({"event": event}) for event in {event for event, _ in rows}}
            lines = (" ".join(filter(None, (first, events[event], _fields(row), last))) for event, row in rows)
        else:
            lines = (render(self._logger, "info", {**row, **shared, "event": event}) for event, row in rows)
        self._logger.info("\n".join(lines))

    def _rendered(self, fields: dict[str, Any]) -> str:
        return str(_render_fields(self._logger, "info", fields))


def _fields(row: dict[str, Any]) -> str:
    """The same text as the renderer's, which checks each character of names and values."""
    return " ".join(
        f"{name}={value}"
        if type(value) is int or (type(value) is str and _PLAIN_TEXT.fullmatch(value))
        else str(_render_fields(None, "info", {name: value}))
        for name, value in row.items()
    )


def logger_levels() -> dict[str, str]:
    """Every logger of the process, including the root, and its effective level."""
    found = {ROOT: _level_name(logging.getLogger().level)}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            found[name] = _level_name(logger.getEffectiveLevel())
    return found


def set_logger_level(name: str, level: str | None) -> None:
    """Set the level of a logger; None: it uses the level of its parent."""
    logging.getLogger(None if name == ROOT else name).setLevel(
        logging.NOTSET if level is None else LEVELS_BY_KAFKAS_NAMES[level]
    )


def _level_name(level: int) -> str:
    names = [name for name, number in LEVELS_BY_KAFKAS_NAMES.items() if number <= level]
    return names[-1] if names else next(iter(LEVELS_BY_KAFKAS_NAMES))
