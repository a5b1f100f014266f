"""Rows of the digests that the brokers keep of a log: a range costs sixteen bytes, for any number
of records. Only Antipode's brokers have digests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.logs.cluster_client import open_client
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.range_contents import range_contents
from wire.client.client_errors import broker_error
from wire.client.requests.range_digest_requests import RangeContent, RangeQuery
from wire.protocol.messages.range_digest_messages import DIGEST_BYTES, RANGE_DIGESTS

LEAVES_PER_RANGE: Final = 64
"""The number of a broker's leaves that one row covers."""
_SCHEMA: Final = pa.schema(
    [
        ("site", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("until_offset", pa.int64()),
        ("digest", pa.binary()),
    ]
)


def digest_rows(options: ClusterOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The digests of one range, a row a node of the broker's tree. Raises BrokerError for a
    compacted log, which has none; UnsupportedApi from other brokers.
    """
    content = asyncio.run(_ask(options, wanted))
    size = content.leaf_offsets * LEAVES_PER_RANGE
    edges = [
        wanted.first_offset,
        *range((wanted.first_offset // size + 1) * size, wanted.until_offset, size),
        wanted.until_offset,
    ]
    rows = [
        (options.site, *wanted.place, first, until, content.content[at : at + DIGEST_BYTES])
        for first, until, at in zip(edges, edges[1:], range(0, len(content.content), DIGEST_BYTES), strict=False)
    ]
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


async def _ask(options: ClusterOptions, wanted: OffsetRange) -> RangeContent:
    query = RangeQuery(*wanted.place, wanted.first_offset, wanted.until_offset, LEAVES_PER_RANGE)
    client = await open_client(options)
    try:
        found = (await range_contents(client, [query]))[query]
    finally:
        await client.close()
    if found.error_code:
        message = f"{query.topic}-{query.partition}: {found.error_message}"
        raise broker_error(found.error_code, message=message, api_key=RANGE_DIGESTS)
    return found
