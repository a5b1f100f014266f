"""The small text files of a log directory and of a partition, in Kafka's formats.

Offset checkpoints (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint`): version 0, the number of lines, then
`topic partition offset`. Additional files in the same format keep reports of mirrors about their
sources: high watermarks, and when the mirror saw them (Unix ms in the offset's place).
`leader-epoch-checkpoint`: the same with `epoch offset`. `partition.metadata`: version and topic id.
`antipode-thinned-checkpoint`: up to where compaction may have removed records of this log.
`meta.properties`: node and cluster id. `antipode-handled-registration-checkpoint`: the newest
registration of the broker whose first image the directory has applied. All are replaced atomically
and durably: temporary file, fsync, rename, fsync of the directory. A damaged file raises
`CorruptCheckpoint`; the caller decides what to do (without a recovery point everything is checked;
without leader epochs they are rebuilt).

Callers: broker/log/directories/log_directory.py, broker/log/loading.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Final

from broker.log.core.leader_epochs import EpochStart
from broker.log.errors import StorageError, storage_errors
from runtime.disk import Disk, read_file, write_file, write_over
from wire.protocol.ids import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
THINNED: Final = "antipode-thinned-checkpoint"
SOURCE_HIGH_WATERMARKS: Final = "antipode-source-high-watermark-checkpoint"
SOURCE_SEEN_AT: Final = "antipode-source-seen-at-checkpoint"
SOURCE_LOG_EPOCHS: Final = "antipode-source-log-epoch-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
HANDLED_REGISTRATION: Final = "antipode-handled-registration-checkpoint"

_VERSION: Final = "0"
_TOPIC_ID_BYTES: Final = 16


class CorruptCheckpoint(StorageError):
    """A checkpoint file that does not follow its format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__("reading", path, reason)


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    _write_lines(disk, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty when there is no file."""
    offsets = {}
    for line in _read_lines(disk, path):
        fields = line.split(" ")
        if len(fields) != 3 or not fields[0]:
            raise CorruptCheckpoint(path, f"line {line!r} is not 'topic partition offset'")
        offsets[TopicPartition(fields[0], _number(path, fields[1]))] = _number(path, fields[2])
    return offsets


def encode_epochs(entries: Iterable[EpochStart]) -> bytes:
    """The content of a leader epoch checkpoint."""
    return _encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def read_epochs(disk: Disk, path: str) -> list[EpochStart]:
    """A leader epoch checkpoint; empty when there is no file."""
    entries: list[EpochStart] = []
    for line in _read_lines(disk, path):
        fields = line.split(" ")
        if len(fields) != 2:
            raise CorruptCheckpoint(path, f"line {line!r} is not 'epoch offset'")
        entry = EpochStart(_number(path, fields[0]), _number(path, fields[1]))
        # epochs grow, offsets may be equal: an epoch without records begins where the next one does
        if entries and not (entries[-1].epoch < entry.epoch and entries[-1].start_offset <= entry.start_offset):
            raise CorruptCheckpoint(path, f"entry {line!r} does not follow the one before")
        entries.append(entry)
    return entries


def write_number(disk: Disk, path: str, number: int) -> None:
    """Replace a checkpoint of one number, durably."""
    _write_lines(disk, path, [str(number)])


def read_number(disk: Disk, path: str) -> int | None:
    """A checkpoint of one number; None when there is no file."""
    lines = _read_lines(disk, path)
    if not lines:
        return None
    return _number(path, lines[0])


def write_topic_id(disk: Disk, path: str, topic_id: bytes, *, is_new: bool = False) -> None:
    """Replace a partition's metadata file durably. With `is_new` create it: a crash may leave it
    torn, and the caller makes it durable.
    """
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    content = f"version: 0\ntopic_id: {text}".encode()
    with storage_errors("writing", path):
        if is_new:
            write_over(disk, path, content)
        else:
            write_file(disk, path, content, is_durable=True)


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """The topic id in a partition's metadata file; None if the file does not exist."""
    text = _read(disk, path)
    if text is None:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        # Kafka writes the id without padding
        topic_id = base64.b64decode(fields["topic_id"] + "==", altchars=b"-_", validate=True)
    except (KeyError, binascii.Error):
        topic_id = b""
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise CorruptCheckpoint(path, "no topic_id of 16 bytes in base64")
    return topic_id


def write_meta_properties(disk: Disk, path: str, *, broker_id: int, cluster_id: str) -> None:
    """Replace `meta.properties`, version 0: the form of a ZooKeeper cluster."""
    lines = ("#", "version=0", f"broker.id={broker_id}", f"cluster.id={cluster_id}", "")
    _write(disk, path, "\n".join(lines).encode())


def read_meta_properties(disk: Disk, path: str) -> dict[str, str]:
    """`meta.properties` as a mapping, whose node id is under `broker.id` in both versions; empty
    when there is no file.
    """
    text = _read(disk, path)
    pairs = (line.split("=", 1) for line in (text or "").splitlines() if "=" in line and not line.startswith("#"))
    fields = {key.strip(): value.strip() for key, value in pairs}
    if "node.id" in fields:
        fields.setdefault("broker.id", fields["node.id"])
    return fields


def _write_lines(disk: Disk, path: str, lines: Iterable[str]) -> None:
    _write(disk, path, _encode_lines(lines))


def _encode_lines(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _write(disk: Disk, path: str, content: bytes) -> None:
    with storage_errors("writing", path):
        write_file(disk, path, content, is_durable=True)


def _read(disk: Disk, path: str) -> str | None:
    with storage_errors("reading", path):
        try:
            content = read_file(disk, path)
        except FileNotFoundError:
            return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CorruptCheckpoint(path, "it is not text") from None


def _read_lines(disk: Disk, path: str) -> list[str]:
    text = _read(disk, path)
    if not text:
        # Apache Kafka makes the files empty at its first start
        return []
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint(path, f"version {lines[0] if lines else ''!r}, known is {_VERSION}")
    if _number(path, lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(path, f"it announces {lines[1]} lines and has {len(lines) - 2}")
    return lines[2:]


def _number(path: str, text: str) -> int:
    # int() takes signs, underscores and digits of other scripts, which no checkpoint has
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 20:
        raise CorruptCheckpoint(path, f"{text!r} is not a number")
    return int(text)
