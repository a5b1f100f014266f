"""The partitions that a reader reads: their positions, their leaders, and what each waits for.
Pure.

A partition that is begun, sought or rewound gets a new generation; answers to requests of an older
generation are ignored.

NO_OFFSET -> READY where to begin is being asked for (by the reset policy or a time) UNVALIDATED ->
READY a new leader is asked whether its log still has what was read (KIP-320) READY fetched from its
leader, if it has one and is not paused HALTED a problem that only the application can resolve was
found and reported. After `retry` the partition returns to its phase: it goes on if the cause is
gone, else the problem is reported again

`fetched` is the position behind the last chunk put into the sink, `consumed` the one behind the
last that the application took. Called by `reader.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from clients.core.partitioners import fetcher_of
from clients.reader.core.positions import Position
from wire.protocol.ids import NO_EPOCH, NO_NODE, PartitionKey

Fetcher = tuple[int, int]
"""A fetcher of the reader: the broker that it reads from, and its number among those of the
broker.
"""


class Phase(enum.Enum):
    """The event that a partition waits for."""

    NO_OFFSET = "no offset"
    UNVALIDATED = "unvalidated"
    READY = "ready"
    HALTED = "halted"


class Start(NamedTuple):
    """The starting point: a position; without it a time (Unix ms, or a special time of
    ListOffsets); without both, the reset policy.
    """

    position: Position | None = None
    timestamp: int | None = None


class Reading(Struct):
    """The reading state of one partition."""

    place: PartitionKey
    generation: int
    phase: Phase
    start: Start
    fetched: Position
    consumed: Position
    fetcher_number: int = 0
    leader: int = NO_NODE
    leader_epoch: int = NO_EPOCH
    is_paused: bool = False
    is_asking: bool = False
    halted_in: Phase = Phase.READY
    lost_position: Position | None = None
    high_watermark: int = -1
    log_start_offset: int = -1

    @property
    def lag(self) -> int:
        """Records between the application's position and the end; -1 while unknown."""
        return -1 if self.high_watermark < 0 else max(0, self.high_watermark - self.consumed.offset)


class Wanted(NamedTuple):
    """The fetch request for one partition."""

    generation: int
    position: Position
    leader_epoch: int


class Readings:
    """The reading states of all partitions of a reader."""

    def __init__(self, fetchers: int = 1) -> None:
        """`fetchers`: how many a broker has at most, 1 or more."""
        self._fetchers = fetchers
        self._readings: dict[PartitionKey, Reading] = {}
        self._generations = 0

    def __contains__(self, place: PartitionKey) -> bool:
        return place in self._readings

    def get(self, place: PartitionKey) -> Reading | None:
        """The partition, None when it is not read."""
        return self._readings.get(place)

    def current(self, place: PartitionKey, generation: int) -> Reading | None:
        """The partition, if it is still what it was then."""
        found = self._readings.get(place)
        return found if found is not None and found.generation == generation else None

    @property
    def places(self) -> list[PartitionKey]:
        """The partitions that are read."""
        return list(self._readings)

    @property
    def topics(self) -> set[str]:
        """Their topics."""
        return {topic for topic, _ in self._readings}

    def begin(self, place: PartitionKey, start: Start) -> None:
        """Read a partition, or read it from elsewhere."""
        before = self._readings.get(place)
        # responses and chunks of the former position have an older generation
        self._generations += 1
        position = start.position or Position(-1)
        reading = Reading(
            place=place,
            generation=self._generations,
            phase=_phase_of(start),
            start=start,
            fetched=position,
            consumed=position,
            fetcher_number=fetcher_of(*place, self._fetchers),
        )
        # kept: a seek does not change the leader, nor whether the partition is paused
        if before is not None:
            reading.leader, reading.leader_epoch = before.leader, before.leader_epoch
            reading.is_paused = before.is_paused
        self._readings[place] = reading

    def end(self, places: Iterable[PartitionKey]) -> None:
        """Stop reading it."""
        for place in places:
            self._readings.pop(place, None)

    def pause(self, places: Iterable[PartitionKey]) -> None:
        """Do not fetch; chunks that were put and not consumed are fetched again later."""
        for place in places:
            if (reading := self._readings.get(place)) is not None and not reading.is_paused:
                # chunks in the queue are dropped, or a resumed consumer would get them twice
                self._generations += 1
                reading.generation = self._generations
                reading.is_paused = True
                if reading.phase is Phase.HALTED:
                    reading.phase = reading.halted_in
                if reading.phase is not Phase.NO_OFFSET:
                    self._take_back(reading)

    def _take_back(self, reading: Reading) -> None:
        """Fetch again the chunks that were put and not consumed."""
        # chunks that were fetched and not consumed are dropped, so they are fetched again
        reading.fetched = reading.consumed
        if reading.phase is Phase.UNVALIDATED and reading.fetched.leader_epoch == NO_EPOCH:
            reading.phase = (
                Phase.READY
            )  # the partition has no epoch to validate (KIP-320), so the offset is used as it is

    def halt(self, reading: Reading) -> None:
        """The partition has a problem that the application must receive."""
        reading.halted_in, reading.phase = reading.phase, Phase.HALTED

    def retry(self, place: PartitionKey) -> None:
        """The application has received the problem."""
        if (reading := self._readings.get(place)) is not None and reading.phase is Phase.HALTED:
            reading.phase = reading.halted_in

    def resume(self, places: Iterable[PartitionKey]) -> None:
        """Fetch again."""
        for place in places:
            if (reading := self._readings.get(place)) is not None:
                reading.is_paused = False

    def led_by(self, place: PartitionKey, leader: int, leader_epoch: int) -> None:
        """The partition's state in newer metadata; an older epoch is ignored."""
        reading = self._readings[place]
        # brokers learn of a new leader at different times: an older epoch is an outdated answer
        if leader_epoch != NO_EPOCH and leader_epoch < reading.leader_epoch:
            return
        is_new = leader_epoch > reading.leader_epoch and reading.fetched.leader_epoch != NO_EPOCH
        # KIP-320: the new leader may lack records that were read
        if is_new and reading.phase is Phase.READY:
            reading.phase = Phase.UNVALIDATED
        reading.leader, reading.leader_epoch = leader, leader_epoch

    def lost_leader(self, place: PartitionKey) -> None:
        """The broker does not lead the partition, or does not answer."""
        if (reading := self._readings.get(place)) is not None:
            reading.leader = NO_NODE

    def leaderless(self) -> list[PartitionKey]:
        """The partitions whose leader is unknown."""
        return [place for place, reading in self._readings.items() if reading.leader == NO_NODE]

    def fetchable(self, leader: int, number: int = 0) -> dict[PartitionKey, Wanted]:
        """The requests of one fetcher of a leader; the partition that waited longest is first."""
        return {
            place: Wanted(reading.generation, reading.fetched, reading.leader_epoch)
            for place, reading in self._readings.items()
            if (reading.leader, reading.fetcher_number) == (leader, number)
            and reading.phase is Phase.READY
            and not reading.is_paused
        }

    def fetchers(self) -> set[Fetcher]:
        """The fetchers that have a partition."""
        return {
            (reading.leader, reading.fetcher_number) for reading in self._readings.values() if reading.leader != NO_NODE
        }

    def asking(self, phase: Phase) -> dict[int, list[Reading]]:
        """Partitions in a phase by leader, without partitions that have a request in flight."""
        found: dict[int, list[Reading]] = {}
        for reading in self._readings.values():
            if reading.phase is phase and not reading.is_asking and reading.leader != NO_NODE:
                found.setdefault(reading.leader, []).append(reading)
        return found

    def found_offset(self, reading: Reading, position: Position) -> None:
        """Continue at the position."""
        reading.phase = Phase.READY
        reading.fetched = reading.consumed = position
        reading.lost_position = None

    def lost_offset(self, reading: Reading) -> None:
        """The position is not in the log: ask where to continue."""
        reading.lost_position = reading.fetched
        reading.start = Start()
        reading.phase = Phase.NO_OFFSET

    def advance(self, reading: Reading, position: Position, *, high_watermark: int, log_start_offset: int) -> None:
        """A chunk was put; its partition moves to the end of the line."""
        reading.fetched = position
        reading.high_watermark, reading.log_start_offset = high_watermark, log_start_offset
        # moved to the end of the next request: brokers fill responses in the order of the request
        self._readings[reading.place] = self._readings.pop(reading.place)

    def positions(self) -> Mapping[PartitionKey, Position]:
        """The positions that the application has consumed, for partitions where they are known."""
        return {place: reading.consumed for place, reading in self._readings.items() if reading.consumed.offset >= 0}


def _phase_of(start: Start) -> Phase:
    if start.position is None:
        return Phase.NO_OFFSET
    return Phase.UNVALIDATED if start.position.leader_epoch != NO_EPOCH else Phase.READY
