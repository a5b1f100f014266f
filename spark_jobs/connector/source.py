"""The data source "antipode": a replacement of Spark's Kafka connector, for either site of a link.

    spark.read.format("antipode").option("kafka.bootstrap.servers", "host:port")
        .option("subscribe", "orders").load()

Options, columns and defaults are the connector's (`connector/core/options.py`); with `mode` a row
is a record, a batch header, a digest, or a record with all that the log stores of it. Spark finds
the source by itself when this project is on its Python path (`pyspark_antipode.py`). Jobs of our
own that have planned what to read use `split_frames.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_jobs.connector.core.options import Mode, Use, parse_read, parse_row, parse_write
from spark_jobs.logs.core.schemas import (
    BATCH_SCHEMA,
    CONSUMER_SCHEMA,
    CONSUMER_SCHEMA_WITH_HEADERS,
    DIGEST_SCHEMA,
    RECORD_SCHEMA,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

NAME = "antipode"
_SCHEMAS = {Mode.HEADERS: BATCH_SCHEMA, Mode.DIGESTS: DIGEST_SCHEMA, Mode.STORED: RECORD_SCHEMA}


class AntipodeSource(DataSource):
    """The data source of `format("antipode")`."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return NAME

    def schema(self) -> str:
        """The schema of a row, by `mode` and `includeHeaders`; the other options are checked when a
        query is planned.
        """
        mode, has_headers = parse_row(dict(self.options))
        return _SCHEMAS.get(mode) or (CONSUMER_SCHEMA_WITH_HEADERS if has_headers else CONSUMER_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        """The reader of batch reads."""
        from spark_jobs.connector.batch_reader import new_reader
        from wire.client.security import SECURITY_KEYS

        return new_reader(parse_read(dict(self.options), Use.READ, SECURITY_KEYS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's signature
        """The reader of streaming reads."""
        from spark_jobs.connector.stream_reader import StreamReader
        from wire.client.security import SECURITY_KEYS

        return StreamReader(parse_read(dict(self.options), Use.READ_STREAM, SECURITY_KEYS))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002  Spark's signature
        """The writer of batch writes."""
        from spark_jobs.connector.sink import BatchSink
        from wire.client.security import SECURITY_KEYS

        return BatchSink(parse_write(dict(self.options), Use.WRITE, SECURITY_KEYS), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """The writer of streaming writes."""
        from spark_jobs.connector.sink import StreamSink
        from wire.client.security import SECURITY_KEYS

        return StreamSink(parse_write(dict(self.options), Use.WRITE_STREAM, SECURITY_KEYS), schema)
