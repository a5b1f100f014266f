"""Bodies and headers of HTTP requests, read as the bridge reads them: anything else than a refusal
with an HTTP status is a defect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from bridge.core.document_stream import DocumentStream
from bridge.core.documents import read
from bridge.core.instance_settings import InstanceRequest, instance_settings
from bridge.core.media_types import EmbeddedFormat, embedded_format_of, negotiate_records
from bridge.core.refusals import Refused
from bridge.core.v2_documents import PlaceOffsets, Places, Subscription, read_records
from bridge.core.v3_records import data_bytes, read_record, timestamp_ms
from bridge.v3_cluster import ConfigChanges, ConfigUpdate, TopicRequest

DOCUMENT_BYTES_MAX: Final = 4096
PIECE_BYTES: Final = 100


def _record_stream(body: bytes) -> None:
    stream = DocumentStream(DOCUMENT_BYTES_MAX)
    for begin in range(0, len(body), PIECE_BYTES):
        for document in stream.feed(body[begin : begin + PIECE_BYTES]):
            record = read_record(document)
            data_bytes(record.key, what="key")
            data_bytes(record.value, what="value")
            timestamp_ms(record.timestamp)
    stream.finish()


def _headers(body: bytes) -> None:
    text = body.decode("latin-1")
    negotiate_records(text, embedded_format_of(text))


READERS: Final[Sequence[Callable[[bytes], Any]]] = (
    _record_stream,
    _headers,
    lambda body: negotiate_records(body.decode("latin-1"), EmbeddedFormat.JSON),
    lambda body: read_records(body, EmbeddedFormat.JSON),
    lambda body: read_records(body, EmbeddedFormat.BINARY),
    lambda body: instance_settings(read(body, InstanceRequest)),
    lambda body: read(body, Subscription),
    lambda body: read(body, Places),
    lambda body: read(body, PlaceOffsets),
    lambda body: read(body, TopicRequest),
    lambda body: read(body, ConfigUpdate),
    lambda body: read(body, ConfigChanges),
)


def run(data: bytes) -> None:
    """Every reader is given the body: few bytes decide which of them gets far."""
    for reader in READERS:
        try:
            reader(data)
        except Refused:
            continue


def seeds() -> Sequence[bytes]:
    """A body of each kind, and media types."""
    return [
        b'{"value":{"type":"JSON","data":{"a":[1,2]}}}\n{"key":{"type":"BINARY","data":"YQ=="},"partition_id":3}',
        b'{"timestamp":"2026-01-01T00:00:00Z","headers":[{"name":"h","value":"YQ=="}],"value":{"type":"STRING","data":"x"}}',
        b'{"records":[{"key":{"k":1},"value":[null,true,1e3],"partition":0}]}',
        b'{"records":[{"key":"YQ==","value":null}]}',
        b'{"name":"i","format":"json","auto.offset.reset":"earliest","auto.commit.enable":"false","fetch.min.bytes":1}',
        b'{"topics":["a","b"]}',
        b'{"topic_pattern":"a.*"}',
        b'{"partitions":[{"topic":"a","partition":0}]}',
        b'{"offsets":[{"topic":"a","partition":0,"offset":5,"metadata":"m"}]}',
        b'{"topic_name":"t","partitions_count":2,"replication_factor":1,"configs":[{"name":"n","value":"v"}]}',
        b'{"data":[{"name":"n","operation":"DELETE"}]}',
        b"application/vnd.kafka.json.v2+json;q=0.5, */*;q=0.1",
    ]
