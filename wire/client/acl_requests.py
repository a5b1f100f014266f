"""ACLs of topics through Kafka's Admin API: what a cluster has, what is to be added, what is to be
taken away.

A cluster without an authorizer answers SECURITY_DISABLED (`BrokerError`), one that does not let us
look CLUSTER_AUTHORIZATION_FAILED. Source: KIP-140.
"""

from collections.abc import Collection
from typing import Any, Final

from kio.schema.errors import ErrorCode

from wire.client.client_errors import broker_error, error_code
from wire.client.connection import Connection
from wire.client.raw_client import KafkaClient
from wire.client.topic_calls import RESOURCE_TOPIC
from wire.rules.acls import ANY, TopicAcl

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31


async def topic_acls(client: KafkaClient) -> set[TopicAcl]:
    """All ACLs of topics. BrokerError when the cluster refuses to describe them."""
    connection = await _controller(client)
    values = {
        "resource_type_filter": RESOURCE_TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    answer = await connection.call(DESCRIBE_ACLS, values)
    _check(answer, connection, DESCRIBE_ACLS)
    return {
        TopicAcl(
            resource.resource_name, resource.pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
        )
        for resource in answer.resources
        for acl in resource.acls
    }


async def create_topic_acls(client: KafkaClient, acls: Collection[TopicAcl]) -> None:
    """Add them; one that is there already is left as it is. BrokerError of the first that is
    refused.
    """
    connection = await _controller(client)
    creations = [
        {
            "resource_type": RESOURCE_TOPIC,
            "resource_name": acl.resource_name,
            "resource_pattern_type": acl.pattern_type,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission_type,
        }
        for acl in acls
    ]
    answer = await connection.call(CREATE_ACLS, {"creations": creations})
    for result in answer.results:
        _check(result, connection, CREATE_ACLS)


async def delete_topic_acls(client: KafkaClient, acls: Collection[TopicAcl]) -> None:
    """Take exactly these away; one that is not there does not matter. BrokerError of the first that
    is refused.
    """
    connection = await _controller(client)
    filters = [
        {
            "resource_type_filter": RESOURCE_TOPIC,
            "resource_name_filter": acl.resource_name,
            "pattern_type_filter": acl.pattern_type,
            "principal_filter": acl.principal,
            "host_filter": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission_type,
        }
        for acl in acls
    ]
    answer = await connection.call(DELETE_ACLS, {"filters": filters})
    for result in answer.filter_results:
        _check(result, connection, DELETE_ACLS)


async def _controller(client: KafkaClient) -> Connection:
    metadata = await client.metadata([])
    return await client.connection(metadata.controller_id)


def _check(outcome: Any, connection: Connection, api_key: int) -> None:
    code = error_code(outcome.error_code)
    if code is not ErrorCode.none:
        raise broker_error(code, message=outcome.error_message, node=str(connection.address), api_key=api_key)
