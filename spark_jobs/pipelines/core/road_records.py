"""Records of road checkpoints and the commands to the pipeline, as data: how they are made, read
and rejected. Pure.

The contract `contracts/road.yaml` declares the fields of a record; times are `YYYY-MM-DD HH:MM:SS`
in UTC; a field that the recognition could not read has the text UNREADABLE. Records never contain
payloads: a command names the file of a payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from spark_jobs.pipelines.core.contracts import RecordSchema, json_object

UNREADABLE: Final = "recognition abnormal"
TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
AHEAD_MAX_MS: Final = 60_000
"""Time (ms) by which a device's clock may be ahead."""
DEVICE, SERVER = "device", "server"
"""The two routes: a smart device sends itself, and a server recognises pictures of old ones."""


class Command(NamedTuple):
    """An operator's command, and the time since which it holds (Unix ms)."""

    command: str
    argument: str
    since_ms: int
    id: str


WATCH, UNWATCH, ANALYSE = "watch", "unwatch", "analyse"
_ARGUMENTS: Final = {WATCH: "plate", UNWATCH: "plate", ANALYSE: "url"}


def road_record(number: int, *, at_ms: int, route: str = DEVICE) -> dict[str, str]:
    """One record as a checkpoint makes it; the same number makes the same one."""
    device = number % 5

    def one_of(*values: str) -> str:
        return values[number // 5 % len(values)]

    return {
        "checkpoint_id": f"1101{device:02d}#1#0#0",
        "plate": f"A{number:06d}",
        "plate_colour": "blue",
        "vehicle_colour": one_of("white", "black", UNREADABLE),
        "vehicle_class": one_of("car", "truck", "bus"),
        "brand": one_of("north", "south", UNREADABLE),
        "series": "1",
        "annual_check": "yes",
        "tissue_box": one_of("yes", "no"),
        "driver_belt": "yes",
        "passenger_belt": one_of("yes", "no", UNREADABLE),
        "capture_time": time_text(at_ms),
        "device_address": f"10.0.0.{device + 1}",
        "server_address": "" if route == DEVICE else "10.0.1.1",
    }


def road_records(count: int, *, at_ms: int, route: str, first: int = 0, bad_every: int = 0) -> Iterator[bytes]:
    """Values for a topic, a second apart; every `bad_every`th one is an invalid record."""
    for number in range(count):
        record = road_record(first + number, at_ms=at_ms + 1_000 * number, route=route)
        if bad_every and number % bad_every == bad_every - 1:
            record["plate"] = UNREADABLE
        yield json.dumps(record).encode()


def time_text(at_ms: int) -> str:
    """The time (Unix ms) in the format of the records."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(TIME_FORMAT)


def time_ms(text: str) -> int:
    """Unix ms of a record's time. ValueError."""
    return round(datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC).timestamp() * 1000)


def rejection(value: bytes | bytearray | None, now_ms: int, schema: RecordSchema) -> str | None:
    """The reason why a value is not stored, as a sentence; None for a record that is stored. The
    schema has the field `capture_time`.
    """
    record = json_object(value)
    if isinstance(record, str):
        return record
    problem = schema.problem_of(record)
    if problem is not None:
        return problem
    unreadable = schema.refusal(record)
    if unreadable is not None:
        return f"{unreadable} could not be read"
    try:
        captured_ms = time_ms(record["capture_time"])
    except ValueError:
        return "capture_time is no time"
    return "capture_time is in the future" if captured_ms > now_ms + AHEAD_MAX_MS else None


def command_of(value: bytes | bytearray | None, *, since_ms: int, id: str) -> Command | None:  # noqa: A002
    """The command in a record of the control topic; None for a value that is not a command."""
    try:
        found: Any = json.loads(bytes(value or b""))
        name = str(found["command"])
        argument = str(found[_ARGUMENTS[name]])
        argument.encode()  # half a character, as JSON can write it, is no text
        return Command(name, argument, since_ms, id)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def watched_since(commands: list[Command]) -> dict[str, int]:
    """The watched plates, each with its start time; later commands take precedence, of one time
    those that are later in the list.
    """
    found: dict[str, int] = {}
    for one in sorted(commands, key=lambda command: command.since_ms):
        if one.command == WATCH:
            found.setdefault(one.argument, one.since_ms)
        elif one.command == UNWATCH:
            found.pop(one.argument, None)
    return found
