"""A link record with some fields changed; the original stays as it is."""

from __future__ import annotations

from wire.control.cluster_pb2 import LinkRecord


def changed(record: LinkRecord, **changes: object) -> LinkRecord:
    """A copy with the given fields."""
    copy = LinkRecord()
    copy.CopyFrom(record)
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy
