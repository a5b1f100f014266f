"""Connections that a mirror asked to compress: the same answers, fewer bytes, and bounds that
hostile bytes do not pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort
from tests.support.clients.patient_options import patient_options
from tests.support.disks.log_batches import batch
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from wire.client.connection import Connection, connected
from wire.client.raw_client import KafkaClient, NewTopic
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.private import CODEC_ZSTD, COMPRESS_CONNECTION, CompressConnectionRequest
from wire.protocol.streams import frames
from wire.protocol.streams.compressed_stream import Compression, CompressionTally

pytestmark = pytest.mark.integration

TOPIC = "orders"
FETCH_BYTES = 4 * 1024 * 1024
VALUES = [f"an order of {number} pieces, paid, to be sent tomorrow".encode() for number in range(1_000)]
NOISE_BYTES = 64_000


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(message_max_bytes=str(FETCH_BYTES + 1_000_000))


@pytest.fixture
def tally() -> CompressionTally:
    return CompressionTally()


@pytest.fixture
async def client(broker: LoneBroker, tally: CompressionTally) -> AsyncIterator[KafkaClient]:
    options = patient_options(compression=Compression(level=3, tally=tally))
    async with KafkaClient(broker.bootstrap, options) as compressed:
        kept = NewTopic(name=TOPIC, partition_count=1, replication_factor=1, configs={"retention.ms": "-1"})
        await compressed.create_topics([kept])
        yield compressed


async def fetched(client: KafkaClient, offset: int = 0) -> bytes:
    topic_id = (await client.metadata([TOPIC])).topics[TOPIC].topic_id
    wanted = TopicToFetch(TOPIC, topic_id, [PartitionToFetch(0, offset, FETCH_BYTES)])
    response = await client.fetch(await client.leader(TOPIC, 0), FetchRequest([wanted], max_bytes=FETCH_BYTES))
    return bytes(response.topics[0].partitions[0].records or b"")


def chance() -> random.Random:
    return random.Random(4)


async def test_the_same_bytes_arrive_as_without(
    broker: LoneBroker, client: KafkaClient, tally: CompressionTally
) -> None:
    for codec in range(5):
        for _ in range(8):
            await client.produce(TOPIC, 0, batch([(None, value) for value in VALUES], codec=codec))
    through_chunks = await fetched(client)
    async with KafkaClient(broker.bootstrap) as plain:
        assert through_chunks == await fetched(plain)
    assert len(through_chunks) > 5 * len(VALUES)
    assert tally.wire_bytes < tally.plain_bytes / 2
    assert not tally.refusals


async def test_incompressible_records_add_next_to_no_bytes(client: KafkaClient, tally: CompressionTally) -> None:
    noise = chance().randbytes(NOISE_BYTES)
    for _ in range(20):
        await client.produce(TOPIC, 0, batch([(None, noise)]))
    assert noise in await fetched(client)
    assert tally.wire_bytes < tally.plain_bytes * 1.01 + 1_000


async def test_answers_keep_their_order_when_many_requests_are_under_way(client: KafkaClient) -> None:
    for number in range(20):
        await client.produce(TOPIC, 0, batch([(None, b"%d" % number)]))
    offsets = [number % 20 for number in range(100)]
    answers = await asyncio.gather(*(fetched(client, offset) for offset in offsets))
    assert [int.from_bytes(answer[:8], "big") for answer in answers] == offsets


async def test_a_reader_with_little_room_gets_all_of_it(broker: LoneBroker, client: KafkaClient) -> None:
    """The socket is full within a chunk, and within the last one too."""
    for _ in range(20):
        await client.produce(TOPIC, 0, batch([(None, chance().randbytes(2 * NOISE_BYTES))]))
    expected = await fetched(client)
    options = patient_options(compression=Compression(level=1), receive_buffer_bytes=4_096)
    async with connected(HostPort("127.0.0.1", broker.port), options) as connection:
        assert connection.is_compressed
        records = await _fetch_through(connection, client)
    assert records == expected


async def test_a_request_that_becomes_larger_than_the_buffers_is_taken_whole(client: KafkaClient) -> None:
    large = bytes(3_000_000)
    await client.produce(TOPIC, 0, batch([(None, large)]))
    assert large in await fetched(client)


async def _fetch_through(connection: Connection, client: KafkaClient) -> bytes:
    from wire.client.requests.broker_requests import request_fetch

    topic_id = (await client.metadata([TOPIC])).topics[TOPIC].topic_id
    wanted = TopicToFetch(TOPIC, topic_id, [PartitionToFetch(0, 0, FETCH_BYTES)])
    response = await request_fetch(connection, FetchRequest([wanted], max_bytes=FETCH_BYTES), timeout_ms=30_000)
    return bytes(response.topics[0].partitions[0].records or b"")


@pytest.mark.parametrize(
    ("codec", "level", "error"),
    [
        (CODEC_ZSTD, 0, ErrorCode.invalid_request),
        (CODEC_ZSTD, 20, ErrorCode.invalid_request),
        (1, 3, ErrorCode.unsupported_compression_type),
    ],
)
async def test_an_unusable_wish_is_refused_and_the_connection_stays_plain(
    broker: LoneBroker, codec: int, level: int, error: ErrorCode
) -> None:
    async with connected(HostPort("127.0.0.1", broker.port), patient_options()) as connection:
        for _ in range(2):
            answer = await connection.call(COMPRESS_CONNECTION, {"codec": codec, "level": level})
            assert answer.error_code is error


async def test_a_broker_that_does_not_offer_it_is_talked_to_without(broker: LoneBroker) -> None:
    wish = Compression(level=3)
    options = patient_options(software_name="another-client", compression=wish)
    async with connected(HostPort("127.0.0.1", broker.port), options) as connection:
        assert not connection.is_compressed
    assert wish.tally.refusals == 1


async def test_bytes_that_are_no_chunks_cost_their_sender_the_connection(
    broker: LoneBroker, client: KafkaClient
) -> None:
    request = CompressConnectionRequest(codec=CODEC_ZSTD, level=3)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as hostile:
        hostile.sendall(frames.encode_request(COMPRESS_CONNECTION, 0, 1, "hostile", request))
        assert hostile.recv(100)
        hostile.sendall(struct.pack(">II", 50, 2**31) + bytes(50))
        with contextlib.suppress(ConnectionResetError):  # if the broker closed before it had read all of that
            assert hostile.recv(100) == b""
    await client.produce(TOPIC, 0, batch([(None, b"still here")]))
