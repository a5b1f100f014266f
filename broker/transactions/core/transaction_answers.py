"""Decisions of the transaction machine that only answer."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from broker.transactions.core.transaction_messages import (
    ProducerReply,
    TransactionAnswer,
    TransactionDecision,
    TransactionReply,
)

NOTHING: Final = TransactionDecision()


def answer(token: int, reply: TransactionReply) -> TransactionDecision:
    """Answer, and change nothing."""
    return TransactionDecision(effects=(TransactionAnswer(token=token, reply=reply),))


def refuse(token: int, error: ErrorCode) -> TransactionDecision:
    """Answer with an error, and change nothing."""
    return answer(token, ProducerReply(error=error))
