"""Errors for clients when a partition's log refuses an operation or fails.

Callers: replicas, and the handlers that read logs themselves.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.errors import OffsetOutOfRange, StorageError
from broker.replication.hosted_partition import PartitionFailure
from runtime.logs import get_logger
from wire.batches.record_batch import InvalidBatch

log = get_logger(__name__)


def failure_of(error: Exception) -> PartitionFailure:
    """A log's refusal or failure as the error that the client gets."""
    match error:
        case BatchRejected():
            return PartitionFailure(error.code, error.reason, error.record_errors)
        case InvalidBatch():
            return PartitionFailure(ErrorCode.corrupt_message, str(error))
        case OffsetOutOfRange():
            return PartitionFailure(ErrorCode.offset_out_of_range, str(error))
        case StorageError():
            log.warning("storage failed", reason=str(error))
            return PartitionFailure(ErrorCode.kafka_storage_error, str(error))
        case _:
            raise error
