"""The records of API v3: one document for each record of the request, and one for each record of
the response.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from bridge.core.documents import NULL, RAW_NULL, read
from bridge.core.refusals import bad_request, unprocessable

SCHEMA_TYPES = {"AVRO", "JSONSCHEMA", "PROTOBUF"}


class Data(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value, and its encoding in the document."""

    type: str = "BINARY"
    data: Raw = RAW_NULL


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record; its value is base64."""

    name: str
    value: bytes | None = None


class RecordRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A record that is sent."""

    partition_id: int | None = None
    headers: list[Header] = []
    key: Data | None = None
    value: Data | None = None
    timestamp: datetime | None = None


class DataTaken(msgspec.Struct):
    """The stored form of a key or a value."""

    type: str
    size: int


class RecordTaken(msgspec.Struct):
    """An acknowledged record."""

    error_code: int
    cluster_id: str
    topic_name: str
    partition_id: int
    offset: int
    timestamp: str
    key: DataTaken | UnsetType = UNSET
    value: DataTaken | UnsetType = UNSET


def read_record(document: bytes) -> RecordRequest:
    """A record. Raises Refused if the document has another structure, a number outside Kafka's
    range, or a name of a header that librdkafka cannot send.
    """
    record = read(document, RecordRequest)
    if record.partition_id is not None and not 0 <= record.partition_id < 2**31:
        raise unprocessable("partition_id must be 0 or more")
    # librdkafka would store the name as far as there
    if any("\0" in header.name for header in record.headers):
        raise unprocessable("the name of a header must not contain the character U+0000")
    return record


def data_bytes(data: Data | None, *, what: str) -> bytes | None:
    """The bytes for the log. Raises Refused when the type is unknown or does not fit the data."""
    if data is None or bytes(data.data) == NULL:
        return None
    raw = bytes(data.data)
    match data.type.upper():
        case "JSON":
            return raw
        case "STRING":
            return _text(raw, what).encode()
        case "BINARY":
            try:
                return base64.b64decode(_text(raw, what), validate=True)
            except (binascii.Error, ValueError) as error:
                raise bad_request(f"{what}.data is not base64 ({error})") from error
    if data.type.upper() in SCHEMA_TYPES:
        raise bad_request(f"{what}.type {data.type} needs a schema registry, which this bridge does not have")
    raise bad_request(f"{what}.type {data.type!r}: accepted are BINARY, JSON and STRING")


def _text(raw: bytes, what: str) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError as error:
        raise bad_request(f"{what}.data must be a string") from error


def timestamp_ms(moment: datetime | None) -> int:
    """Milliseconds since 1970; 0 where the client lets Kafka choose. A time without a zone is
    UTC.
    """
    if moment is None:
        return 0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    milliseconds = round(aware.timestamp() * 1000)
    if milliseconds <= 0:
        raise bad_request("timestamp must be after 1970-01-01T00:00:00Z")
    return milliseconds


def timestamp_text(milliseconds: int) -> str:
    """A time in the form of responses."""
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def taken(data: Data | None, stored: bytes | None) -> DataTaken | UnsetType:
    """The response's fields for a key or a value; empty if none was sent."""
    return UNSET if data is None else DataTaken(data.type.upper(), len(stored or b""))
