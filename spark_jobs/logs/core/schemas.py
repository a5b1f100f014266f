"""Columns of the DataFrames that jobs exchange, as Spark DDL; the data source fills them, the
comparisons read them.
"""

from __future__ import annotations

BATCH_SCHEMA = (
    "site string, topic string, partition int, base_offset bigint, last_offset bigint, record_count int, "
    "size_bytes int, crc bigint, is_crc_valid boolean, leader_epoch int, attributes int, producer_id bigint, "
    "producer_epoch int, base_sequence int, base_timestamp_ms bigint, max_timestamp_ms bigint"
)
"""One row a record batch, from its header alone; offsets are inclusive, times Unix ms."""

RECORD_SCHEMA = (
    "site string, topic string, partition int, offset bigint, timestamp_ms bigint, leader_epoch int, is_control boolean, "
    "key binary, value binary, headers array<struct<name: string, value: binary>>, is_log_append_time boolean, "
    "is_transactional boolean, producer_id bigint"
)
"""One row a record; only where batches are opened. Epoch, producer and marks are its batch's."""

CONSUMER_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
"""One row a record as consumers see it: the columns of Spark's Kafka connector."""

CONSUMER_SCHEMA_WITH_HEADERS = f"{CONSUMER_SCHEMA}, headers array<struct<key: string, value: binary>>"

DIGEST_SCHEMA = "site string, topic string, partition int, first_offset bigint, until_offset bigint, digest binary"
"""One row a range of offsets, `until_offset` not included: the digest that the leader has of it."""
