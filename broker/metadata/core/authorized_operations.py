"""Authorized operations: the operations that a client may do on a topic, a group or the cluster,
for requests with `include_authorized_operations`.

An answer is a bit field; the bit of an operation is its code in Kafka's ACLs (KIP-430). Without an
authorizer every client may do everything, as in Kafka. A client that does not ask gets NOT_ASKED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wire.rules.acls import Operation

NOT_ASKED: Final = -(1 << 31)
"""The value of a field that the client did not request, and of a resource that the broker could not
check.
"""


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)

ALL_OF_A_TOPIC: Final = _bits(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        *_CONFIGS,
    )
)
ALL_OF_A_GROUP: Final = _bits((Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS))
ALL_OF_THE_CLUSTER: Final = _bits(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    )
)


def answered(operations: int, *, is_asked: bool) -> int:
    """The field's value: the operations if the client asked for them."""
    return operations if is_asked else NOT_ASKED
