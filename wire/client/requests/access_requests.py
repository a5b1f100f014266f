"""Client quotas and SCRAM users through Kafka's Admin API: what a cluster has. Source: KIP-546,
KIP-554.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from wire.client.client_errors import broker_error, error_code
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.rules.client_quotas import QuotaEntity, quota_entity
from wire.rules.scram import MECHANISM_NUMBERS

DESCRIBE_CLIENT_QUOTAS: Final = 48
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
_MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}


async def describe_client_quotas(client: KafkaClient) -> dict[tuple[QuotaEntity, str], float]:
    """All quotas by entity and key. BrokerError when the cluster refuses to describe them."""
    connection = await _any_broker(client)
    answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False})
    _check(answer, connection, DESCRIBE_CLIENT_QUOTAS)
    return {
        (quota_entity((part.entity_type, part.entity_name) for part in entry.entity), value.key): float(value.value)
        for entry in answer.entries or ()
        for value in entry.values
    }


async def describe_scram_users(client: KafkaClient) -> dict[tuple[str, str], int]:
    """The iterations of each credential by user and mechanism; the credential itself is shown to no
    client. BrokerError when the cluster refuses to describe them.
    """
    connection = await _any_broker(client)
    answer = await connection.call(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    _check(answer, connection, DESCRIBE_USER_SCRAM_CREDENTIALS)
    return {
        (result.user, _MECHANISMS.get(int(info.mechanism), str(int(info.mechanism)))): info.iterations
        for result in answer.results
        for info in result.credential_infos
    }


async def _any_broker(client: KafkaClient) -> Connection:
    metadata = await client.metadata([])
    return await client.connection(min(metadata.brokers))


def _check(answer: Any, connection: Connection, api_key: int) -> None:
    code = error_code(answer.error_code)
    if code is not ErrorCode.none:
        raise broker_error(code, message=answer.error_message, node=str(connection.address), api_key=api_key)
