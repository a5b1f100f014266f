"""librdkafka at its own speed: the library that confluent-kafka ships, called in bulk, so that no
Python code runs for each record.

Producing passes a thousand records in each call and lets the library block when its queue is full;
this process never copies the payloads. Consuming runs the library's callback loop with a C function
that does nothing, and adds up what the loop returns. Delivery is not reported for single records:
after producing, the log's end is compared with the count.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from runtime.process import OperationalFailure

_PRODUCER, _CONSUMER = 0, 1
_CONF_OK = 0
_ANY_PARTITION = -1
_FROM_BEGINNING = -2
_MAY_BLOCK = 0x4
"""RD_KAFKA_MSG_F_BLOCK of rdkafka.h; without F_COPY and F_FREE the caller keeps the payload."""
_ERROR_TEXT_SIZE = 512
RECORDS_PER_CALL = 1000
WAIT_MS = 100
"""The longest wait of one call into the library, in ms: Ctrl-C takes effect after it."""
STALLED_AFTER_S = 60

PRODUCER_SETTINGS: Final = {
    "linger.ms": "5",
    "batch.size": "131072",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1048576",
    "message.timeout.ms": "0",
}
"""No record expires in the queue: on a slow machine a large load takes minutes, and `produce`
itself notices when nothing moves.
"""
EVENLY: Final = {"acks": "1", "sticky.partitioning.linger.ms": "0"}
"""Chooses a partition for each record: by default, the library sends a burst of large records to
one partition.
"""
CONSUMER_SETTINGS: Final = {"queued.min.messages": "1000000", "fetch.message.max.bytes": "4194304"}


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("payload_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", ctypes.c_void_p),
    )


def produce(
    bootstrap_servers: str, topic: str, payloads: Sequence[bytes], count: int, settings: Mapping[str, str]
) -> float:
    """Produce `count` records, cycling through the payloads, to partitions that the library
    chooses; return the seconds until all are acknowledged.

    Raises OperationalFailure if no record is acknowledged for STALLED_AFTER_S.
    """
    with ExitStack() as cleaning:
        library = _library()
        client = _client(library, _PRODUCER, bootstrap_servers, {**PRODUCER_SETTINGS, **settings}, cleaning)
        handle = _topic(library, client, topic, cleaning)
        buffers = [ctypes.create_string_buffer(payload, len(payload)) for payload in payloads]
        messages = (_Message * RECORDS_PER_CALL)()
        for index, message in enumerate(messages):
            buffer = buffers[index % len(buffers)]
            message.payload, message.payload_size = ctypes.addressof(buffer), len(buffer)
        cleaning.callback(library.rd_kafka_purge, client, 3)
        began = time.monotonic()
        sent = 0
        while sent < count:
            wanted = min(RECORDS_PER_CALL, count - sent)
            taken = library.rd_kafka_produce_batch(handle, _ANY_PARTITION, _MAY_BLOCK, messages, wanted)
            if taken < wanted:
                raise OperationalFailure(f"librdkafka took {taken} of {wanted} records for {topic}")
            sent += taken
        _flush(library, client, topic)
        return time.monotonic() - began


def _flush(library: Any, client: int, topic: str) -> None:
    left, moved_at = library.rd_kafka_outq_len(client), time.monotonic()
    while library.rd_kafka_flush(client, WAIT_MS):
        now_left = library.rd_kafka_outq_len(client)
        if now_left != left:
            left, moved_at = now_left, time.monotonic()
        elif time.monotonic() - moved_at > STALLED_AFTER_S:
            raise OperationalFailure(
                f"{left} records for {topic} are not acknowledged after {STALLED_AFTER_S} s without any"
            )


def consume(bootstrap_servers: str, topic: str, partition_count: int, count: int, settings: Mapping[str, str]) -> float:
    """Read `count` records from the beginning of all partitions, without a group; return records a
    second, measured from the first arrival.

    The library waits half a second of its own before its first fetch; this is not part of the time
    (except when all records arrive at once). Raises OperationalFailure if no record arrives for
    STALLED_AFTER_S.
    """
    with ExitStack() as cleaning:
        library = _library()
        client = _client(library, _CONSUMER, bootstrap_servers, {**CONSUMER_SETTINGS, **settings}, cleaning)
        handle = _topic(library, client, topic, cleaning)
        queue = library.rd_kafka_queue_new(client)
        cleaning.callback(library.rd_kafka_queue_destroy, queue)
        began = time.monotonic()
        for partition in range(partition_count):
            if library.rd_kafka_consume_start_queue(handle, partition, _FROM_BEGINNING, queue):
                raise OperationalFailure(f"librdkafka cannot read {topic}-{partition}")
            cleaning.callback(library.rd_kafka_consume_stop, handle, partition)
        first_count, first_at = _receive(library, queue, topic, 1)
        if first_count >= count:
            return first_count / (first_at - began)
        rest_count, last_at = _receive(library, queue, topic, count - first_count)
        return rest_count / (last_at - first_at)


def _receive(library: Any, queue: int, topic: str, count: int) -> tuple[int, float]:
    """Receive at least `count` more records; return how many arrived, and when the last did."""
    do_nothing = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
    received, received_at = 0, time.monotonic()
    while received < count:
        more = library.rd_kafka_consume_callback_queue(queue, WAIT_MS, do_nothing, None)
        if more > 0:
            received, received_at = received + more, time.monotonic()
        elif time.monotonic() - received_at > STALLED_AFTER_S:
            raise OperationalFailure(f"{topic}: {received} of {count} records came, then none for {STALLED_AFTER_S} s")
    return received, received_at


def _client(library: Any, kind: int, bootstrap_servers: str, settings: Mapping[str, str], cleaning: ExitStack) -> int:
    reported = ctypes.create_string_buffer(_ERROR_TEXT_SIZE)
    configuration = library.rd_kafka_conf_new()
    for key, value in {"bootstrap.servers": bootstrap_servers, **settings}.items():
        if (
            library.rd_kafka_conf_set(configuration, key.encode(), value.encode(), reported, _ERROR_TEXT_SIZE)
            != _CONF_OK
        ):
            library.rd_kafka_conf_destroy(configuration)
            raise OperationalFailure(f"librdkafka setting {key}={value}: {reported.value.decode()}")
    client = library.rd_kafka_new(kind, configuration, reported, _ERROR_TEXT_SIZE)
    if not client:
        library.rd_kafka_conf_destroy(configuration)
        raise OperationalFailure(f"librdkafka: {reported.value.decode()}")
    cleaning.callback(library.rd_kafka_destroy, client)
    return int(client)


def _topic(library: Any, client: int, topic: str, cleaning: ExitStack) -> int:
    handle = library.rd_kafka_topic_new(client, topic.encode(), None)
    cleaning.callback(library.rd_kafka_topic_destroy, handle)
    return int(handle)


def _library() -> Any:
    """The shared library inside the confluent-kafka wheel, with the signatures of rdkafka.h."""
    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.with_name("confluent_kafka.libs").glob("librdkafka-*.so*"))
    if not found:
        raise OperationalFailure(f"no librdkafka beside {package}: install confluent-kafka as a wheel (make setup)")
    library = ctypes.CDLL(str(found[0]))
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "conf_new": (pointer, ()),
        "conf_set": (number, (pointer, text, text, text, size)),
        "conf_destroy": (None, (pointer,)),
        "new": (pointer, (number, pointer, text, size)),
        "destroy": (None, (pointer,)),
        "topic_new": (pointer, (pointer, text, pointer)),
        "topic_destroy": (None, (pointer,)),
        "produce_batch": (number, (pointer, ctypes.c_int32, number, ctypes.POINTER(_Message), number)),
        "flush": (number, (pointer, number)),
        "outq_len": (number, (pointer,)),
        "purge": (number, (pointer, number)),
        "queue_new": (pointer, (pointer,)),
        "queue_destroy": (None, (pointer,)),
        "consume_start_queue": (number, (pointer, ctypes.c_int32, ctypes.c_int64, pointer)),
        "consume_callback_queue": (number, (pointer, number, pointer, pointer)),
        "consume_stop": (number, (pointer, ctypes.c_int32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library
