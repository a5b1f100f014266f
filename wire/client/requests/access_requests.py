"""Client quotas and SCRAM users through Kafka's Admin API: what a cluster has. Source: KIP-546,
KIP-554.
"""

from __future__ import annotations

from typing import Final

from wire.client.raw_client import KafkaClient
from wire.client.requests.answer_checks import check_outcome, lowest_connection
from wire.rules.client_quotas import QuotaEntity, quota_entity
from wire.rules.scram import MECHANISM_NUMBERS

DESCRIBE_CLIENT_QUOTAS: Final = 48
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = 50
_MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}


async def describe_client_quotas(client: KafkaClient) -> dict[tuple[QuotaEntity, str], float]:
    """All quotas by entity and key. BrokerError when the cluster refuses to describe them."""
    connection = await lowest_connection(client)
    answer = await connection.call(DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False})
    check_outcome(answer, connection, DESCRIBE_CLIENT_QUOTAS)
    return {
        (quota_entity((part.entity_type, part.entity_name) for part in entry.entity), value.key): float(value.value)
        for entry in answer.entries or ()
        for value in entry.values
    }


async def describe_scram_users(client: KafkaClient) -> dict[tuple[str, str], int]:
    """The iterations of each credential by user and mechanism; the credential itself is shown to no
    client. BrokerError when the cluster refuses to describe them.
    """
    connection = await lowest_connection(client)
    answer = await connection.call(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    check_outcome(answer, connection, DESCRIBE_USER_SCRAM_CREDENTIALS)
    return {
        (result.user, _MECHANISMS.get(int(info.mechanism), str(int(info.mechanism)))): info.iterations
        for result in answer.results
        for info in result.credential_infos
    }
