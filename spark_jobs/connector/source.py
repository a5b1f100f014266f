"""The data source "antipode": a replacement of Spark's Kafka connector, for either site of a link.

    spark.read.format("antipode").option("kafka.bootstrap.servers", "host:port")
        .option("subscribe", "orders").load()

Options, columns and defaults are the connector's (`connector/core/options.py`); with `mode` a row
is a record, a batch header, a digest, or a record with all that the log stores of it. Spark finds
the source by itself when this project is on its Python path (`pyspark_antipode.py`). Jobs of our
own that have planned what to read use `split_frames.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_jobs.connector.batch_reader import new_reader
from spark_jobs.connector.core.options import Mode, ReadOptions, Use, parse_read, parse_write
from spark_jobs.connector.record_rows import schema_of
from spark_jobs.connector.sink import BatchSink, StreamSink
from spark_jobs.connector.stream_reader import StreamReader
from spark_jobs.logs.core.cluster_options import InvalidOption
from spark_jobs.logs.core.schemas import BATCH_SCHEMA, DIGEST_SCHEMA, RECORD_SCHEMA
from wire.client.security import SECURITY_KEYS

NAME = "antipode"
_SCHEMAS = {Mode.HEADERS: BATCH_SCHEMA, Mode.DIGESTS: DIGEST_SCHEMA, Mode.STORED: RECORD_SCHEMA}


class AntipodeSource(DataSource):
    """The data source of `format("antipode")`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return NAME

    def schema(self) -> str:
        """The schema of a row, by `mode` and `includeHeaders`."""
        # Streams have the schema of a batch with the same options, and accept one of records alone.
        options = _read_options(self.options)
        return _SCHEMAS.get(options.mode) or schema_of(options)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        """The reader of batch reads."""
        return new_reader(parse_read(dict(self.options), Use.READ, SECURITY_KEYS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's signature
        """The reader of streaming reads."""
        return StreamReader(parse_read(dict(self.options), Use.READ_STREAM, SECURITY_KEYS))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002  Spark's signature
        """The writer of batch writes."""
        return BatchSink(parse_write(dict(self.options), Use.WRITE, SECURITY_KEYS), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """The writer of streaming writes."""
        return StreamSink(parse_write(dict(self.options), Use.WRITE_STREAM, SECURITY_KEYS), schema)


def _read_options(options: Mapping[str, str]) -> ReadOptions:
    """Options of a read of either kind: Spark asks for columns before it says whether the query is
    a batch or a stream.
    """
    try:
        return parse_read(dict(options), Use.READ, SECURITY_KEYS)
    except InvalidOption as of_batch:
        try:
            return parse_read(dict(options), Use.READ_STREAM, SECURITY_KEYS)
        except InvalidOption:
            raise of_batch from None
