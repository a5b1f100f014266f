"""The options of the data source: those of Spark's Kafka connector with its defaults, and a few of
our own. Pure.

An unknown option is refused, and so are two contradicting options, with the key, the value and what
is accepted. Names are compared without regard to case, as Spark does.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_jobs.connector.core import offsets
from spark_jobs.connector.core.durations import FORM, duration_ms
from spark_jobs.connector.core.java_options import JAVA_ONLY
from spark_jobs.connector.core.offsets import Bound, BoundKind, InvalidOffsets
from spark_jobs.connector.core.planning import NO_LIMIT
from spark_jobs.logs.core.cluster_options import ClusterOptions, InvalidOption
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PartitionKey

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SPLIT_BYTES: Final = 256 * 1024 * 1024
"""Each task costs Java and its Python worker time beside its records: with half of this size a read
of eight logs of 130 MB has five tasks more, and takes an eighth more processor time.
"""
FETCH_BYTES: Final = 8 * 1024 * 1024
TRIGGER_DELAY_MS_MAX: Final = 900_000
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The maximum that brokers allow by default, because a task's transaction stays open until all
tasks of its batch have written.
"""
Value = TypeVar("Value")


class Mode(enum.StrEnum):
    """The content of a row."""

    RECORDS = "records"
    """A record, with the Kafka connector's columns."""
    HEADERS = "headers"
    """A record batch, by its header; nothing is decompressed."""
    DIGESTS = "digests"
    """A range of offsets, by the digest that the brokers keep of it."""
    STORED = "stored"
    """A record with its leader epoch, as the log holds it: also markers and aborted records."""


class Use(enum.Enum):
    """The use of the options: a read or a write, of a batch or a stream."""

    READ = "read"
    READ_STREAM = "readStream"
    WRITE = "write"
    WRITE_STREAM = "writeStream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The partitions of a read: by name, by an expression on whole names, or one by one."""

    topics: frozenset[str] = frozenset()
    pattern: str = ""
    partitions: tuple[PartitionKey, ...] = ()

    def has(self, topic: str) -> bool:
        """True if the topic's partitions are read; partitions that are assigned one by one do not
        count.
        """
        return topic in self.topics or (bool(self.pattern) and re.fullmatch(self.pattern, topic) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A read, as a whole or as a stream."""

    cluster: ClusterOptions
    subscription: Subscription
    starting: Bound
    ending: Bound
    mode: Mode = Mode.RECORDS
    has_headers: bool = False
    isolation_level: int = READ_UNCOMMITTED
    is_failing_on_loss: bool = True
    is_latest_without_match: bool = False
    offsets_per_trigger: int = NO_LIMIT
    offsets_per_trigger_min: int = 0
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_MAX
    partitions_min: int = 0
    records_per_partition: int = NO_LIMIT
    progress_group: str = ""
    split_bytes: int = SPLIT_BYTES
    fetch_bytes: int = FETCH_BYTES
    keeps_epochs: bool = True
    verifies_checksums: bool = True
    tally_directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write. `topic` "" takes the topic of each row."""

    cluster: ClusterOptions
    topic: str = ""
    has_headers: bool = False
    compression: str = "none"
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    query: str = ""
    recognises_batches: bool = True


_MODES: Final = {mode.value: mode for mode in Mode}
_CODECS: Final = {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}
_AFTER_FAILOVER: Final = {"recognise": True, "write": False}
_SHAPING: Final = ("mode", "includeheaders")
_SELECTORS: Final = ("assign", "subscribe", "subscribePattern")
_STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_CLUSTER: Final = ("kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms")
_READING: Final = (
    *_SELECTORS,
    *_STARTS,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "mode",
    "antipode.site",
    "antipode.split.bytes",
    "antipode.tally.directory",
    "antipode.verify.checksums",
    "kafka.isolation.level",
    "kafka.client.rack",
    "kafka.max.partition.fetch.bytes",
)
_STREAMING: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "antipode.leader.epochs",
    "antipode.progress.group",
)
_WRITING: Final = ("topic", "includeHeaders", "kafka.compression.type")
_STREAM_WRITING: Final = ("antipode.query", "antipode.after.failover", "kafka.transaction.timeout.ms")
_OF_USE: Final = {
    Use.READ: (*_READING, *_ENDS),
    Use.READ_STREAM: (*_READING, *_STREAMING),
    Use.WRITE: _WRITING,
    Use.WRITE_STREAM: (*_WRITING, *_STREAM_WRITING),
}


def accepted_options(use: Use, security_keys: tuple[str, ...]) -> tuple[str, ...]:
    """All option names of a use, sorted."""
    names = (*_CLUSTER, *_OF_USE[use], *(f"kafka.{key}" for key in security_keys), *JAVA_ONLY)
    return tuple(sorted(names))


class _Given:
    """The options that a job gives, by their name without regard to case."""

    def __init__(self, options: Mapping[str, str], use: Use, security_keys: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in accepted_options(use, security_keys)}
        self._values = {}
        for key, value in options.items():
            # Spark adds these itself: for `load(path)`, and for every streaming write.
            if key.lower() in ("checkpointlocation", "path"):
                continue
            if key.lower() not in names:
                others = ", ".join(name for name in names.values() if name not in JAVA_ONLY)
                raise InvalidOption(key, value, f"for {use.value} {others}")
            self._values[names[key.lower()]] = value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str = "") -> str:
        return self._values.get(key, default)

    def one_of(self, key: str, default: str, accepted: Mapping[str, Value]) -> Value:
        value = self._values.get(key, default)
        if value.lower() not in accepted:
            raise InvalidOption(key, value, ", ".join(accepted))
        return accepted[value.lower()]

    def flag(self, key: str, *, default: bool) -> bool:
        return self.one_of(key, str(default).lower(), {"true": True, "false": False})

    def number(self, key: str, default: int, *, least: int = 1) -> int:
        value = self._values.get(key)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise InvalidOption(key, value, f"a number from {least} on")
        return number

    def duration_ms(self, key: str, default_ms: int) -> int:
        found = duration_ms(self._values[key]) if key in self._values else default_ms
        if found is None:
            raise InvalidOption(key, self._values[key], FORM)
        return found

    def parsed(self, key: str, parse: Callable[[str], Value]) -> Value:
        try:
            return parse(self._values[key])
        except InvalidOffsets as error:
            raise InvalidOption(key, self._values[key], str(error)) from error

    def only_one(self, keys: tuple[str, ...]) -> str | None:
        """The one key of these that is given; None for none. Raises InvalidOption for two."""
        given = [key for key in keys if key in self._values]
        if len(given) > 1:
            raise InvalidOption(given[1], self._values[given[1]], f"not together with {given[0]}")
        return given[0] if given else None


def parse_row(options: Mapping[str, str]) -> tuple[Mode, bool]:
    """What a row of a read is: the mode, and whether a record has its headers. InvalidOption."""
    shaping = {key: value for key, value in options.items() if key.lower() in _SHAPING}
    return _row(_Given(shaping, Use.READ, ()))


def _row(given: _Given) -> tuple[Mode, bool]:
    mode = given.one_of("mode", Mode.RECORDS, _MODES)
    has_headers = given.flag("includeHeaders", default=False)
    if has_headers and mode is not Mode.RECORDS:
        raise InvalidOption("includeHeaders", "true", f"only with mode=records, not {mode}")
    return mode, has_headers


def parse_read(options: Mapping[str, str], use: Use, security_keys: tuple[str, ...]) -> ReadOptions:
    """The options of a read. InvalidOption."""
    given = _Given(options, use, security_keys)
    is_stream = use is Use.READ_STREAM
    mode, has_headers = _row(given)
    if is_stream and mode is not Mode.RECORDS:
        raise InvalidOption("mode", mode.value, "for readStream records")
    ending = Bound(kind=BoundKind.LATEST) if is_stream else _ending(given)
    return ReadOptions(
        cluster=_cluster(given, security_keys),
        subscription=_subscription(given),
        starting=_starting(given, is_stream=is_stream),
        ending=ending,
        mode=mode,
        has_headers=has_headers,
        isolation_level=given.one_of(
            "kafka.isolation.level",
            "read_uncommitted",
            {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED},
        ),
        is_failing_on_loss=given.flag("failOnDataLoss", default=True),
        is_latest_without_match=given.one_of(
            "startingOffsetsByTimestampStrategy", "error", {"error": False, "latest": True}
        ),
        offsets_per_trigger=given.number("maxOffsetsPerTrigger", NO_LIMIT),
        offsets_per_trigger_min=_offsets_per_trigger_min(given),
        trigger_delay_ms_max=given.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS_MAX),
        partitions_min=given.number("minPartitions", 0),
        records_per_partition=given.number("maxRecordsPerPartition", NO_LIMIT),
        progress_group=_progress_group(given),
        split_bytes=given.number("antipode.split.bytes", SPLIT_BYTES),
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes", FETCH_BYTES),
        keeps_epochs=given.flag("antipode.leader.epochs", default=True),
        tally_directory=given.text("antipode.tally.directory"),
        verifies_checksums=_verifies_checksums(given, mode),
    )


def _offsets_per_trigger_min(given: _Given) -> int:
    least, most = given.number("minOffsetsPerTrigger", 0), given.number("maxOffsetsPerTrigger", NO_LIMIT)
    if most != NO_LIMIT and least > most:
        raise InvalidOption("minOffsetsPerTrigger", str(least), f"at most maxOffsetsPerTrigger, {most}")
    return least


def _progress_group(given: _Given) -> str:
    group = given.text("antipode.progress.group")
    if group and given.text("antipode.site"):
        # a standby takes no offsets of groups but those that the mirror carries
        raise InvalidOption("antipode.progress.group", group, "not together with antipode.site")
    return group


def _verifies_checksums(given: _Given, mode: Mode) -> bool:
    is_verified = given.flag("antipode.verify.checksums", default=True)
    if not is_verified and mode is not Mode.HEADERS:
        raise InvalidOption("antipode.verify.checksums", "false", f"only with mode=headers, not {mode}")
    return is_verified


def parse_write(options: Mapping[str, str], use: Use, security_keys: tuple[str, ...]) -> WriteOptions:
    """The options of a write. InvalidOption."""
    given = _Given(options, use, security_keys)
    return WriteOptions(
        cluster=_cluster(given, security_keys),
        topic=given.text("topic"),
        has_headers=given.flag("includeHeaders", default=False),
        compression=given.one_of("kafka.compression.type", "none", _CODECS),
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        query=given.text("antipode.query"),
        recognises_batches=given.one_of("antipode.after.failover", "recognise", _AFTER_FAILOVER),
    )


def _cluster(given: _Given, security_keys: tuple[str, ...]) -> ClusterOptions:
    if not given.text("kafka.bootstrap.servers"):
        raise InvalidOption("kafka.bootstrap.servers", "", "host:port[,host:port...]")
    security = tuple((key, given.text(f"kafka.{key}")) for key in security_keys if f"kafka.{key}" in given)
    return ClusterOptions(
        bootstrap=given.text("kafka.bootstrap.servers"),
        site=given.text("antipode.site"),
        rack=given.text("kafka.client.rack"),
        client_id=given.text("kafka.client.id", "antipode-spark"),
        request_timeout_ms=given.number("kafka.request.timeout.ms", 30_000),
        security=security,
    )


def _subscription(given: _Given) -> Subscription:
    selector = given.only_one(_SELECTORS)
    if selector is None:
        raise InvalidOption("subscribe", "", f"one of {', '.join(_SELECTORS)} is needed")
    text = given.text(selector)
    if selector == "assign":
        return Subscription(partitions=given.parsed(selector, offsets.parse_partitions))
    if selector == "subscribe":
        names = frozenset(name.strip() for name in text.split(",") if name.strip())
        if not names:
            raise InvalidOption(selector, text, "names of topics, separated by commas")
        return Subscription(topics=names)
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(selector, text, f"a regular expression ({error})") from error
    return Subscription(pattern=text)


def _starting(given: _Given, *, is_stream: bool) -> Bound:
    key = given.only_one(_STARTS)
    if key is None:
        return Bound(kind=BoundKind.LATEST if is_stream else BoundKind.EARLIEST)
    bound = _bound(given, key)
    if not is_stream and (bound.kind is BoundKind.LATEST or LATEST_TIMESTAMP in _offsets(bound)):
        raise InvalidOption(key, given.text(key), "for a batch earliest, or offsets other than -1 (latest)")
    return bound


def _ending(given: _Given) -> Bound:
    key = given.only_one(_ENDS)
    if key is None:
        return Bound(kind=BoundKind.LATEST)
    bound = _bound(given, key)
    if bound.kind is BoundKind.EARLIEST or EARLIEST_TIMESTAMP in _offsets(bound):
        raise InvalidOption(key, given.text(key), "latest, or offsets other than -2 (earliest)")
    return bound


def _offsets(bound: Bound) -> list[int]:
    return list(bound.values.values()) if bound.kind is BoundKind.OFFSETS else []


def _bound(given: _Given, key: str) -> Bound:
    if key.endswith("Timestamp") and "Offsets" not in key:
        return Bound(kind=BoundKind.TIMESTAMPS, timestamp_ms=given.number(key, 0, least=0), option=key)
    if key.endswith("ByTimestamp"):
        return Bound(kind=BoundKind.TIMESTAMPS, values=given.parsed(key, offsets.parse_times), option=key)
    words = {"earliest": BoundKind.EARLIEST, "latest": BoundKind.LATEST}
    word = given.text(key).strip().lower()
    if word in words:
        return Bound(kind=words[word], option=key)
    return Bound(kind=BoundKind.OFFSETS, values=given.parsed(key, offsets.parse_offsets), option=key)
