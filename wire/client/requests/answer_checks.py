"""The common parts of requests to a cluster: which broker is asked, and the error of an answer."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from wire.client.client_errors import broker_error, error_code
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient


async def controller_connection(client: KafkaClient) -> Connection:
    """The connection to the broker that the cluster names as its controller."""
    metadata = await client.metadata([])
    return await client.connection(metadata.controller_id)


async def lowest_connection(client: KafkaClient) -> Connection:
    """The connection to the broker with the lowest id, for requests that every broker answers."""
    metadata = await client.metadata([])
    return await client.connection(min(metadata.brokers))


def check_outcome(outcome: Any, connection: Connection, api_key: int) -> None:
    """Raise BrokerError if the answer, or a part of one, has an error code."""
    code = error_code(outcome.error_code)
    if code is not ErrorCode.none:
        message = getattr(outcome, "error_message", None)
        raise broker_error(code, message=message, node=str(connection.address), api_key=api_key)


def check_code(code: ErrorCode, connection: Connection, api_key: int) -> None:
    """Raise BrokerError for an error code without a message."""
    if code:
        raise broker_error(code, node=str(connection.address), api_key=api_key)
