"""Rows of batch headers without the batches: the leader sends the headers alone, which is a few
kilobytes for millions of records.

Checksums are not verified then, since that takes the bodies. What a leader does not answer so is
read whole: logs of other brokers, compacted and damaged logs, ranges that retention moved, and
reads by a principal without ClusterAction.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.connector.arrow_columns import number_column, repeated_number, repeated_text
from spark_jobs.connector.core.options import ReadOptions
from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.connector.tally import Tally
from spark_jobs.logs.cluster_client import open_client
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.core.schemas import BATCH_SCHEMA
from spark_jobs.logs.core.splits import Split
from spark_jobs.logs.iteration import iterated
from spark_jobs.logs.log_reader import read_split
from spark_jobs.logs.range_contents import range_contents
from spark_jobs.logs.stored_rows import arrow_schema, batch_rows
from wire.batches.record_batch import LOG_OVERHEAD
from wire.client.client_errors import TRANSIENT, KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.range_digest_requests import RangeQuery
from wire.protocol.messages.range_digest_messages import HEADER_OFFSETS_MAX, HEADERS

ROUND_OFFSETS: Final = 4 * HEADER_OFFSETS_MAX
"""The offsets whose headers are held in memory at a time."""
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""A batch header as it lies in the log."""
_NOTHING: Final = np.empty(0, dtype=_HEADER)


def split_of(site: str, wanted: OffsetRange) -> Split:
    """The range as a piece of a site's log."""
    return Split(
        site=site,
        topic=wanted.topic,
        partition=wanted.partition,
        first_offset=wanted.first_offset,
        until_offset=wanted.until_offset,
        is_first=wanted.is_first,
    )


class _Round(NamedTuple):
    """New headers of a range in log order, and the offset below which the leader has answered; it
    is the last answer about the range if that is its end, or if `is_refused`.
    """

    headers: np.ndarray
    end_offset: int
    is_refused: bool = False


def header_rows(options: ReadOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Rows of BATCH_SCHEMA, with `is_crc_valid` null where the bodies were not read. Raises
    KafkaClientError when the site does not answer.
    """
    splits = {wanted: split_of(options.cluster.site, wanted) for wanted in ranges}
    tally = Tally()
    for wanted, one in iterated(_rounds(options.cluster, splits)):
        tally.batches += len(one.headers)
        tally.read_bytes += one.headers.nbytes
        if len(one.headers):
            yield _arrow(splits[wanted], one.headers)
        if one.is_refused:
            is_begun = one.end_offset > wanted.first_offset
            rest = replace(splits[wanted], first_offset=one.end_offset, is_first=wanted.is_first and not is_begun)
            yield from batch_rows((rest, one) for one in tally.counted(read_split(options.cluster, rest)))
        if one.is_refused or one.end_offset >= wanted.until_offset:
            if options.tally_directory:
                tally.write(wanted, options.tally_directory)
            tally = Tally()


async def _rounds(
    options: ClusterOptions, splits: Mapping[OffsetRange, Split]
) -> AsyncGenerator[tuple[OffsetRange, _Round]]:
    client = await open_client(options)
    try:
        for wanted, split in splits.items():
            async for one in _rounds_of(client, split):
                yield wanted, one
    finally:
        await client.close()


async def _rounds_of(client: KafkaClient, split: Split) -> AsyncGenerator[_Round]:
    offset, reached = split.first_offset, split.first_offset
    while offset < split.until_offset:
        queries = [
            RangeQuery(
                split.topic, split.partition, first, min(first + HEADER_OFFSETS_MAX, split.until_offset), HEADERS
            )
            for first in range(offset, min(offset + ROUND_OFFSETS, split.until_offset), HEADER_OFFSETS_MAX)
        ]
        try:
            answers = await range_contents(client, queries)
        except TRANSIENT:
            raise
        except KafkaClientError:  # brokers without digests
            yield _Round(_NOTHING, offset, is_refused=True)
            return
        found = [answers[query] for query in queries]
        refused = next((number for number, one in enumerate(found) if one.error_code), None)
        headers = np.frombuffer(b"".join(one.content for one in found[:refused]), dtype=_HEADER)
        # a batch may begin before the first offset of the log's first range
        is_unknown = split.is_first and offset == split.first_offset > found[0].log_start_offset
        if is_unknown and (not len(headers) or headers["base_offset"][0] > offset):
            yield _Round(_NOTHING, offset, is_refused=True)
            return
        headers, reached = _without_repeated(headers, reached)
        if refused is not None:
            yield _Round(headers, queries[refused].first_offset, is_refused=True)
            return
        offset = queries[-1].end_offset
        yield _Round(headers, offset)


def _without_repeated(headers: np.ndarray, reached: int) -> tuple[np.ndarray, int]:
    """The headers without batches at offsets that the log has had before, and the offset after the
    last of them.
    """
    ends = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"] + 1
    highest = np.maximum.accumulate(np.concatenate(([reached], ends)))
    return headers[ends > highest[:-1]], int(highest[-1])


def _arrow(split: Split, headers: np.ndarray) -> pa.RecordBatch:
    count = len(headers)
    last_offsets = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"]
    arrays = [
        repeated_text(split.site, count),
        repeated_text(split.topic, count),
        repeated_number(split.partition, count),
        number_column(headers["base_offset"], np.int64),
        number_column(last_offsets, np.int64),
        number_column(headers["record_count"], np.int32),
        number_column(headers["batch_length"] + LOG_OVERHEAD, np.int32),
        number_column(headers["crc"], np.int64),
        pa.nulls(count, pa.bool_()),
        number_column(headers["leader_epoch"], np.int32),
        number_column(headers["attributes"], np.int32),
        number_column(headers["producer_id"], np.int64),
        number_column(headers["producer_epoch"], np.int32),
        number_column(headers["base_sequence"], np.int32),
        number_column(headers["base_timestamp"], np.int64),
        number_column(headers["max_timestamp"], np.int64),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(BATCH_SCHEMA))
