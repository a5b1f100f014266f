"""ListTransactions: the transactional ids that this broker coordinates, by state, producer, age and
name.

Versions: 0 to 2. A pattern (version 2) is a regular expression for the whole name, in the syntax of
RE2, as at Kafka; one that RE2 does not accept gets INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.groups.core.consumer_protocol.topic_patterns import InvalidPattern, compiled_pattern
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.transactions.core.transaction_states import Transaction, TransactionState
from broker.transactions.transaction_coordinator import TransactionCoordinator
from runtime.clock import Clock

API_KEY = 66
MIN_VERSION = 0
MAX_VERSION = 2

ANY_DURATION = -1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    transactions: TransactionCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ListTransactions request."""
    build = builder(API_KEY, context.api_version)
    text = getattr(request, "transactional_id_pattern", None)
    try:
        pattern = compiled_pattern(text) if text else None
    except InvalidPattern:
        error = ErrorCode.invalid_regular_expression
        return build.response(error_code=error, unknown_state_filters=(), transaction_states=())
    labels = {state.label: state for state in TransactionState}
    wanted = {labels[name] for name in request.state_filters if name in labels}
    producer_ids = set(request.producer_id_filters)
    now_ms = doors.clock.now_ms()

    def is_wanted(found: Transaction) -> bool:
        return (
            (not request.state_filters or found.state in wanted)
            and (not producer_ids or found.producer_id in producer_ids)
            and _is_old_enough(found, getattr(request, "duration_filter", ANY_DURATION), now_ms)
            and (pattern is None or pattern.fullmatch(found.transactional_id) is not None)
        )

    error = ErrorCode.coordinator_load_in_progress if doors.transactions.is_loading else ErrorCode.none
    return build.response(
        error_code=error,
        unknown_state_filters=tuple(name for name in request.state_filters if name not in labels),
        transaction_states=tuple(
            build.part(
                "TransactionState",
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.label,
            )
            for found in doors.transactions.list_transactions()
            if is_wanted(found)
        ),
    )


def _is_old_enough(found: Transaction, duration_ms: int, now_ms: int) -> bool:
    """True if no duration is given, or if the transaction has been running for longer than the
    duration (in ms).
    """
    if duration_ms < 0:
        return True
    return found.started_ms >= 0 and not found.state.is_over and now_ms - found.started_ms > duration_ms
