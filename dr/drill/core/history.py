"""The observations of a drill's clients, as facts: records acknowledged to a producer, records
delivered to a consumer, logs read at the end.

The clients append these facts to files as lines of tab-separated fields (`load.py`), the checkers
read them as sequences (`core/checkers.py`). Each record has a unique value in a drill: the name of
the load and the number of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

ACKNOWLEDGED = "A"
FAILED = "F"
DELIVERED = "D"


class Acknowledged(NamedTuple):
    """A record that a broker acknowledged. `number` orders the records of one load."""

    load: str
    number: int
    topic: str
    partition: int
    offset: int
    sent_at_ms: float
    acknowledged_at_ms: float

    @property
    def value(self) -> str:
        """The record's unique name."""
        return f"{self.load}:{self.number}"


class Failed(NamedTuple):
    """A record that the producer gave up; the log may contain it all the same."""

    load: str
    number: int
    topic: str
    at_ms: float
    reason: str

    @property
    def value(self) -> str:
        """The record's unique name."""
        return f"{self.load}:{self.number}"


class Delivered(NamedTuple):
    """A record that a member of a group received. `assignment` counts the member's assignments: the
    order is guaranteed only within one assignment.
    """

    member: str
    assignment: int
    topic: str
    partition: int
    offset: int
    value: str
    at_ms: float


class LogRecord(NamedTuple):
    """A record in a site's log at the end of the drill."""

    site: str
    topic: str
    partition: int
    offset: int
    value: str


def to_line(fact: Acknowledged | Failed | Delivered) -> str:
    """One line for a history file."""
    kind = {Acknowledged: ACKNOWLEDGED, Failed: FAILED, Delivered: DELIVERED}[type(fact)]
    fields = (str(field).replace("\t", " ").replace("\n", " ") for field in fact)
    return "\t".join((kind, *fields)) + "\n"


def read_lines(lines: Iterable[str]) -> Iterator[Acknowledged | Failed | Delivered]:
    """Facts of a history file; a torn last line, of a client that was killed, is left out."""
    for line in lines:
        if not line.endswith("\n"):
            return
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == ACKNOWLEDGED:
            load, number, topic, partition, offset, sent, acknowledged = fields
            yield Acknowledged(
                load=load,
                number=int(number),
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                sent_at_ms=float(sent),
                acknowledged_at_ms=float(acknowledged),
            )
        elif kind == DELIVERED:
            member, assignment, topic, partition, offset, value, at = fields
            yield Delivered(
                member=member,
                assignment=int(assignment),
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                value=value,
                at_ms=float(at),
            )
        elif kind == FAILED:
            load, number, topic, at, reason = fields
            yield Failed(load, int(number), topic, float(at), reason)
        else:
            raise ValueError(f"history line of unknown kind {kind!r}")
